"""A page process that nobody uses sleeps."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.server.page import Page, running

SECONDS = 3.0


def wake_ups(page: Page) -> int:
    """How often the threads of the page process have given up the processor of their own accord, which each wait does once."""
    return sum(int(line.split()[1]) for status in Path(f"/proc/{page.process.pid}/task").glob("*/status")
               for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts wake-ups in /proc")
def test_nothing_polls_while_nobody_is_there():
    """Gradio's queue alone used to wake the process five hundred times a second."""
    with running() as page:
        deadline = time.monotonic() + 60
        while b"bs-data" not in page.fetch("/"):                    # Gradio's page arrives later than the server
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(2.0)
        before = wake_ups(page)
        time.sleep(SECONDS)
        assert (wake_ups(page) - before) / SECONDS < 60
