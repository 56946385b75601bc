"""Host-memory slots for the blocks of offloaded requests; one slot holds one block."""

from __future__ import annotations

from collections import deque

from engine.errors import IntegrityError


class SwapPool:
    """A preallocated pool of ``num_slots`` slots."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free: deque[int] = deque(range(num_slots))
        self._free_after_step: list[int] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """The caller has checked ``count <= num_free``."""
        return [self._free.popleft() for _ in range(count)]

    def release_after_step(self, slots: list[int]) -> None:
        """Within one step the copy in is read after the copy out is written: a slot being read must not be handed out."""
        self._free_after_step.extend(slots)

    def begin_step(self) -> None:
        self._free.extend(self._free_after_step)
        self._free_after_step.clear()

    def check_integrity(self, held: list[int]) -> None:
        """Raises :class:`IntegrityError` unless each slot is free or held by one request."""
        everything = sorted(list(self._free) + self._free_after_step + held)
        if everything != list(range(self.num_slots)):
            raise IntegrityError("a swap slot is lost or held twice")
