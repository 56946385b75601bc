"""Host memory for the blocks of preempted requests, and the batched copies in and out of it."""

from __future__ import annotations

import torch

from engine.model.packed_batch import PagedKVCache


class SwapPool:
    """``num_slots`` slots of one block each (K and V of every place of a layer group), allocated once; pinned on CUDA.

    A step's blocks are gathered in one indexing operation on the device and cross over in one copy for each run of
    neighbouring slots: one copy, as long as the slots were handed out in order. Nothing waits for the host.
    """

    def __init__(self, cache: PagedKVCache, num_slots: int) -> None:
        self._cache = cache
        places, kinds, _, *block = cache.storage.shape
        self._slots = torch.empty(num_slots, places, kinds, *block, dtype=cache.storage.dtype,
                                  pin_memory=cache.storage.device.type == "cuda")

    @property
    def slot_bytes(self) -> int:
        return self._slots[0].numel() * self._slots.element_size() if len(self._slots) else 0

    def copy_out(self, pairs: list[tuple[int, int]]) -> int:
        """Block → slot for each pair, in stream order. Returns the bytes copied."""
        pairs = sorted(pairs, key=lambda pair: pair[1])
        gathered = self._cache.storage.index_select(2, _index([block for block, _ in pairs], self._cache.storage.device))
        gathered = gathered.movedim(2, 0).contiguous()
        for start, slot, length in _runs([slot for _, slot in pairs]):
            self._slots[slot:slot + length].copy_(gathered[start:start + length], non_blocking=True)
        return len(pairs) * self.slot_bytes

    def copy_in(self, pairs: list[tuple[int, int]]) -> int:
        """Slot → block for each pair, in stream order. Returns the bytes copied."""
        pairs = sorted(pairs)
        storage = self._cache.storage
        arrived = torch.empty(len(pairs), *self._slots.shape[1:], dtype=storage.dtype, device=storage.device)
        for start, slot, length in _runs([slot for slot, _ in pairs]):
            arrived[start:start + length].copy_(self._slots[slot:slot + length], non_blocking=True)
        storage.index_copy_(2, _index([block for _, block in pairs], storage.device), arrived.movedim(0, 2))
        return len(pairs) * self.slot_bytes


def copy_blocks(cache: PagedKVCache, pairs: list[tuple[int, int]]) -> None:
    """Block → block for each pair: all sources are read before any destination is written."""
    device = cache.storage.device
    content = cache.storage.index_select(2, _index([source for source, _ in pairs], device))
    cache.storage.index_copy_(2, _index([target for _, target in pairs], device), content)


def _index(numbers: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)


def _runs(slots: list[int]) -> list[tuple[int, int, int]]:
    """Ascending slot numbers as runs of neighbours: (place in the list, first slot, length)."""
    runs: list[tuple[int, int, int]] = []
    for place, slot in enumerate(slots):
        if runs and runs[-1][1] + runs[-1][2] == slot:
            start, first, length = runs[-1]
            runs[-1] = (start, first, length + 1)
        else:
            runs.append((place, slot, 1))
    return runs
