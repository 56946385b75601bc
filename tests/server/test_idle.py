"""A page process that nobody uses sleeps."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.server.page import Page, running

SECONDS = 3.0


def wake_ups(page: Page) -> dict[str, int]:
    """How often each thread of the page process has given up the processor of its own accord, which each wait does once."""
    counts = {}
    for status in Path(f"/proc/{page.process.pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):                          # a thread may have ended meanwhile
            counts[status.parent.name] = sum(
                int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))
    return counts


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts wake-ups in /proc")
def test_nothing_polls_while_nobody_is_there():
    """Gradio's queue alone used to wake the process five hundred times a second."""
    with running() as page:
        deadline = time.monotonic() + 60
        while b"bs-data" not in page.fetch("/"):                    # Gradio's page arrives later than the server
            assert time.monotonic() < deadline
            time.sleep(0.2)
        # What was begun by starting and by the visit comes to its end; then it is quiet.
        deadline, rate = time.monotonic() + 60, 60.0
        while rate >= 60:
            assert time.monotonic() < deadline, f"woken {rate:.0f} times a second"
            before = wake_ups(page)
            time.sleep(SECONDS)
            rate = sum(count - before.get(thread, 0) for thread, count in wake_ups(page).items()) / SECONDS
