"""Real time, for rooms on a real device."""

from __future__ import annotations

import time

from engine.executor.base import Clock


class RealClock(Clock):
    """Seconds since it was made; monotonic."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start
