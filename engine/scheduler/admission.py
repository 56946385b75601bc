"""Admission: may a waiting request start? The first of the three decisions.

Too much admission drains the cache and forces preemption; too little leaves the device idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engine.request import Request, RequestState
from engine.scheduler.reasons import Reason

if TYPE_CHECKING:
    from engine.scheduler.base import Scheduler


def promised_blocks(scheduler: Scheduler, requests: Iterable[Request]) -> int:
    """Blocks that those of ``requests`` whose prompt is not done have yet to take: free now, but spoken for."""
    layout = scheduler.cache.layout
    return sum(max(0, layout.blocks_needed(request.total_tokens) - sum(map(len, request.tables)))
               for request in requests if request.state is RequestState.PREFILLING)


def closed_door(scheduler: Scheduler, request: Request) -> tuple[Reason, int, int, int] | None:
    """Why nobody may start now, ``request`` or another, as (reason, need, have, limit); ``None`` when somebody may.

    Asked first, so that a request that waits at a closed door is not looked up in the prefix cache at every step.
    """
    cache, config = scheduler.cache, scheduler.config
    if len(scheduler.active) >= config.max_requests_per_batch:
        return Reason.REQUEST_CAP, 1, config.max_requests_per_batch - len(scheduler.active), config.max_requests_per_batch
    free = cache.num_free
    # With nobody running, the margin protects nobody.
    margin = math.ceil(config.effective_safety_margin * cache.layout.num_blocks) if scheduler.active else 0
    if free < margin:
        return Reason.SAFETY_MARGIN, cache.layout.blocks_needed(request.total_tokens), free, margin
    return None


def refusal(scheduler: Scheduler, request: Request, prefix: list[int], fork: bool) -> tuple[Reason, int, int, int] | None:
    """Why ``request`` may not start now although the door is open, as (reason, need, have, limit); ``None`` when it may.

    ``prefix`` are blocks that already hold its start; ``fork`` tells that its sibling's cache can be shared.
    """
    cache = scheduler.cache
    # The whole known length must fit beside what is promised to prompts already admitted, or long prompts that are
    # admitted slice by slice push each other out again (the admit-preempt loop).
    if fork:
        need = len(cache.layout.groups)         # the shared tail, copied on its first write
    else:
        need = cache.layout.blocks_needed(request.total_tokens) - cache.owned_among(prefix)
    have = cache.num_free - scheduler.promised
    if need > have:
        return Reason.NO_FREE_BLOCK, need, have, cache.layout.num_blocks
    return None
