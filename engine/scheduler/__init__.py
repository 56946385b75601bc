"""Who is computed in the next step, and why the others are not."""

from __future__ import annotations

from engine.scheduler.base import Scheduler
from engine.scheduler.fifo import FIFOScheduler
from engine.scheduler.prefill_first import PrefillFirstScheduler
from engine.scheduler.static import StaticScheduler

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fifo": FIFOScheduler, "prefill_first": PrefillFirstScheduler, "static": StaticScheduler,
}

__all__ = ["SCHEDULERS", "Scheduler"]
