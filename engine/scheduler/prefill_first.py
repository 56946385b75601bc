"""PrefillFirst: finish prompts that were begun before decoding on."""

from __future__ import annotations

from collections.abc import Iterable

from engine.request import Request
from engine.scheduler.base import Scheduler
from engine.scheduler.fifo import split_by_state


class PrefillFirstScheduler(Scheduler):
    """Long prompts leave the half-filled state sooner, and decodes may starve meanwhile: both are worth seeing."""

    def service_order(self) -> Iterable[Request]:
        decoding, prefilling = split_by_state(self.active.values())
        return prefilling + decoding
