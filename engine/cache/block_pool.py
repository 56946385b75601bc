"""The one pool of cache blocks that all layer groups and all requests draw from.

A block is in exactly one of three places:

    uninitialized   no content worth keeping              ┐ both count as free: `num_free`
    initialized     complete, hashed, and owned by nobody ┘ (reusable by a prefix hit until demoted)
    owned           in at least one block table; `owners[block]` counts them
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from engine.errors import IntegrityError


class BlockPool:
    """Hands out block numbers and takes them back. Knows nothing of tensors or tokens.

    ``on_demote(blocks)`` is called when initialized blocks lose their content to make room.
    ``demotion_policy``: ``"most_recent"`` gives up the most recently freed block first (as transformers does),
    ``"lru"`` the least recently freed one (as vLLM does).
    """

    def __init__(self, num_blocks: int, on_demote: Callable[[list[int]], None], demotion_policy: str = "most_recent") -> None:
        self.num_blocks = num_blocks
        self.demotion_policy = demotion_policy
        self.owners = [0] * num_blocks
        self.uninitialized: deque[int] = deque(range(num_blocks))
        self.initialized: OrderedDict[int, None] = OrderedDict()      # in the order they were freed
        self._on_demote = on_demote

    @property
    def num_free(self) -> int:
        return len(self.uninitialized) + len(self.initialized)

    def allocate(self, count: int) -> list[int]:
        """``count`` blocks with one owner each; uninitialized ones first, then by demotion.

        The caller has checked ``count <= num_free``: allocation is all or nothing, and it is the caller's "no" that
        carries the reason.
        """
        short = count - len(self.uninitialized)
        if short > 0:
            self._demote(short)
        blocks = [self.uninitialized.popleft() for _ in range(count)]
        for block in blocks:
            self.owners[block] = 1
        return blocks

    def add_owner(self, block: int) -> None:
        """One more table holds ``block``, which is owned or initialized."""
        if self.owners[block] == 0:
            del self.initialized[block]
        self.owners[block] += 1

    def release(self, blocks: list[int], is_hashed: Callable[[int], bool]) -> None:
        """One owner less for each of a table's ``blocks``, given in logical order.

        The tail of a chain must be given up before its head, since a hit needs every block before it. So the head is freed
        last when the oldest is demoted first, and first when the newest is.
        """
        for block in blocks if self.demotion_policy == "most_recent" else reversed(blocks):
            self.owners[block] -= 1
            if self.owners[block] == 0:
                if is_hashed(block):
                    self.initialized[block] = None
                else:
                    self.uninitialized.append(block)

    def forget(self, blocks: Iterable[int]) -> None:
        """The content of ``blocks`` is no longer known: those without an owner become uninitialized."""
        for block in blocks:
            if block in self.initialized:
                del self.initialized[block]
                self.uninitialized.append(block)

    def _demote(self, count: int) -> None:
        newest_first = self.demotion_policy == "most_recent"
        demoted = [self.initialized.popitem(last=newest_first)[0] for _ in range(count)]
        self._on_demote(demoted)
        self.uninitialized.extend(demoted)

    def check_integrity(self, tables: Iterable[list[int]]) -> None:
        """Raises :class:`IntegrityError` unless every block is in exactly one place and owner counts equal the ``tables``."""
        counted = [0] * self.num_blocks
        for table in tables:
            for block in table:
                counted[block] += 1
        if counted != self.owners:
            wrong = [block for block in range(self.num_blocks) if counted[block] != self.owners[block]]
            raise IntegrityError(f"owner counts differ from the block tables for blocks {wrong[:10]}")
        free = list(self.uninitialized) + list(self.initialized)
        if len(set(free)) != len(free) or any(self.owners[block] for block in free):
            raise IntegrityError("a free block is listed twice, or is owned")
        if len(free) + sum(1 for owners in counted if owners) != self.num_blocks:
            raise IntegrityError("free and owned blocks do not add up to the pool")
