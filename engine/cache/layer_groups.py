"""Layers that share block numbers.

Layers are grouped by attention type into groups of equal size. A block of a group holds the K/V of ``block_size`` tokens
for every layer of that group, so the pool can hand any block to any group: all blocks weigh the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd

from engine.model_spec import FULL, SLIDING, ModelSpec


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """One group: its attention kind, the model layers in it, and the window (tokens) when it slides."""

    index: int
    kind: str
    layers: tuple[int, ...]
    window: int | None = None

    def slots_needed(self, num_tokens: int) -> int:
        """Cache slots that ``num_tokens`` positions occupy: a sliding group wraps around at its window."""
        return num_tokens if self.window is None else min(num_tokens, self.window)

    def blocks_needed(self, num_tokens: int, block_size: int) -> int:
        return -(-self.slots_needed(num_tokens) // block_size)


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Everything the executor needs to allocate the cache tensors.

    ``num_blocks`` usable blocks are numbered 0 … num_blocks-1. Two more follow: block ``padding_read`` is what padding rows
    read, and ``padding_write`` is where they write, so that a padding row never touches a real slot. For sliding groups the
    read index ``SENTINEL`` marks "take this K/V from the step's own new tokens, not from the cache".
    """

    groups: tuple[LayerGroup, ...]
    num_blocks: int
    block_size: int
    block_bytes: int
    num_swap_slots: int = 0

    @property
    def padding_read(self) -> int:
        return self.num_blocks

    @property
    def padding_write(self) -> int:
        return self.num_blocks + 1

    @property
    def all_full_attention(self) -> bool:
        return all(group.window is None for group in self.groups)

    def blocks_needed(self, num_tokens: int) -> int:
        """Blocks over all groups for ``num_tokens`` positions of one request."""
        return sum(group.blocks_needed(num_tokens, self.block_size) for group in self.groups)


SENTINEL = -1


def group_layers(spec: ModelSpec) -> tuple[LayerGroup, ...]:
    """Split the layers by attention type into groups of equal size.

    The size is the greatest common divisor of the layer counts of the types, so 20 sliding and 4 full layers become five
    sliding groups and one full group of four layers each. A model with one type makes one group.
    """
    by_kind: dict[str, list[int]] = {}
    for layer, kind in enumerate(spec.layer_types):
        by_kind.setdefault(kind, []).append(layer)
    size = reduce(gcd, (len(layers) for layers in by_kind.values()))
    groups: list[LayerGroup] = []
    for kind in (FULL, SLIDING):
        layers = by_kind.get(kind, [])
        for first in range(0, len(layers), size):
            window = spec.sliding_window if kind == SLIDING else None
            groups.append(LayerGroup(len(groups), kind, tuple(layers[first:first + size]), window))
    return tuple(groups)
