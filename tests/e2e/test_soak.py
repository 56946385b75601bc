"""Ten minutes live at thirty steps a second: the browser's heap and its number of nodes stay flat. Only with ``make soak``.

``BATCHSCOPE_SOAK_SECONDS`` shortens it for a first look.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.e2e.served import App

pytestmark = pytest.mark.soak
SECONDS = float(os.environ.get("BATCHSCOPE_SOAK_SECONDS", "600"))
SAMPLES = 60


def test_heap_and_nodes_stay_flat(open_page: Callable[..., Page]):
    app = App("--device", "simulated:h100", "--model", "llama-8b", pace=30).until_ready()
    try:
        page = open_page(app.url)
        page.evaluate("""() => batchscope.command('workload', { workload: { num_requests: 20000, arrivals: { kind: 'closed', users: 12 },
            content: 'tokens', prompt_length: { kind: 'uniform', low: 8, high: 120 }, output_length: { kind: 'uniform', low: 8, high: 60 } } })""")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        samples = []
        for _ in range(SAMPLES):
            page.wait_for_timeout(SECONDS * 1000 / SAMPLES)
            session.send("HeapProfiler.collectGarbage")
            values = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
            samples.append((values["JSHeapUsedSize"], values["Nodes"]))
        third = SAMPLES // 3
        for index, name in enumerate(("heap", "nodes")):
            second, last = (statistics.median(sample[index] for sample in part) for part in (samples[third:2 * third], samples[2 * third:]))
            print(f"{name}: {second:,.0f} in the second third, {last:,.0f} in the last; samples {[sample[index] for sample in samples]}")
            assert last <= second * 1.05, f"{name} grew from {second:,.0f} to {last:,.0f}"
    finally:
        app.stop()
