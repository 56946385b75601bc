"""Preemption: who gives blocks back when running requests cannot grow? The third decision.

Newest first, only as many as the demand needs, never the last active one: the oldest always makes progress, so the
engine does too.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.cache.paged_cache import PagedCache
from engine.request import Request


def choose_victims(active: Collection[Request], starved: dict[str, int], cache: PagedCache) -> tuple[list[Request], int]:
    """The requests to preempt, newest first, and the demand in blocks that they serve.

    ``starved`` maps the id of each starved request to the blocks it needs. A victim that was starved itself takes its need
    away. The list is empty when what is free already covers the demand.
    """
    victims: list[Request] = []
    demand = sum(starved.values())
    free = cache.num_free
    # Held static slots and requests without blocks have nothing to give.
    candidates = sorted((request for request in active if request.tables and not request.holds_slot),
                        key=lambda request: request.ordinal)
    total_demand = demand
    while demand > free and len(candidates) > 1:
        victim = candidates.pop()
        victims.append(victim)
        demand -= starved.get(victim.id, 0)
        free += _freed_with(victims, victim, cache)
    return victims, total_demand


def _freed_with(victims: list[Request], newest: Request, cache: PagedCache) -> int:
    """Blocks that only become free once ``newest`` joins the ``victims``: all their owners are among them."""
    owners = cache.pool.owners
    others = victims[:-1]
    freed = 0
    for group, table in enumerate(newest.tables):
        for block in table:
            if owners[block] == 1 or (others and owners[block] == 1 + sum(block in other.tables[group] for other in others)):
                freed += 1
    return freed
