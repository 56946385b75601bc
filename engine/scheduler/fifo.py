"""FIFO: decodes first, then unfinished prefills, then arrivals."""

from __future__ import annotations

from collections.abc import Iterable

from engine.request import Request, RequestState
from engine.scheduler.base import Scheduler


class FIFOScheduler(Scheduler):
    """Running answers are never held up by a prompt for longer than one slice of ``max_batch_tokens``."""

    def service_order(self) -> Iterable[Request]:
        decoding, prefilling = split_by_state(self.active.values())
        return decoding + prefilling


def split_by_state(requests: Iterable[Request]) -> tuple[list[Request], list[Request]]:
    """(decoding, prefilling), each in order of admission."""
    decoding: list[Request] = []
    prefilling: list[Request] = []
    for request in requests:
        (decoding if request.state is RequestState.DECODING else prefilling).append(request)
    return decoding, prefilling
