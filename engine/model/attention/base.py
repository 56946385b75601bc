"""What an attention backend does: store the step's new K/V and attend to the paged cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from engine.model.packed_batch import GatherIndices, GroupIndices, PackedBatch


@dataclass(frozen=True, slots=True)
class Scores:
    """How scores are made: ``scale · q·k``, then ``softcap · tanh(score / softcap)`` where a model asks for it (Gemma 2).
    ``sinks`` [Hq] is one more score for each query head, with no value behind it, that takes its share of the attention
    (gpt-oss)."""

    scale: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a backend would have to work."""

    device: torch.device
    dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    softcap: bool = False      # the model caps its scores
    sinks: bool = False        # the model has attention sinks


class AttentionBackend(ABC):
    """Attention over the paged cache. Shapes: T tokens, Hq query heads, Hkv K/V heads (Hq a multiple of Hkv), head size D.

    A subclass fills in the three reads below; one that can do everything in a single kernel overrides :meth:`attend`.
    """

    name: str
    takes_sinks: bool = False

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        """Why this backend cannot be used at ``place``, as the end of a sentence, or ``None``."""
        return None

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
               batch: PackedBatch, group: GroupIndices, scores: Scores) -> torch.Tensor:
        """Attention of one layer for the whole step. Writes ``key``/``value`` [T, Hkv, D] into ``keys``/``values``
        [num_blocks + 2, block_size, Hkv, D]; returns [T, Hq, D] for ``query`` [T, Hq, D]."""
        decode = batch.num_decode
        gathered = None
        if group.gather is not None:
            # Before the writes below: a slice overwrites ring slots that its own first tokens still attend to.
            gathered = (gather(keys, key[decode:], group.gather), gather(values, value[decode:], group.gather))
        write(keys, key, group.slot_mapping)
        write(values, value, group.slot_mapping)
        if decode == batch.num_tokens:
            return self.decode(query, keys, values, batch, group, scores)
        if gathered is None:
            rest = self.prefill(query[decode:], keys, values, batch, group, scores)
        else:
            rest = self.prefill_window(query[decode:], *gathered, batch, group, scores)
        if decode == 0:
            return rest
        return torch.cat([self.decode(query[:decode], keys, values, batch, group, scores), rest])

    @abstractmethod
    def decode(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: PackedBatch, group: GroupIndices,
               scores: Scores) -> torch.Tensor:
        """Decode rows, ``query`` [num_decode, Hq, D]: row i attends to its first ``kv_lengths[i]`` slots."""

    @abstractmethod
    def prefill(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: PackedBatch, group: GroupIndices,
                scores: Scores) -> torch.Tensor:
        """Prefill rows of a full group, ``query`` [T - num_decode, Hq, D]: causal, aligned at the end of each row."""

    @abstractmethod
    def prefill_window(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: PackedBatch,
                       group: GroupIndices, scores: Scores) -> torch.Tensor:
        """Prefill rows of a sliding group over gathered ``key``/``value`` [K, Hkv, D] (packed by ``group.gather.starts``):
        causal, aligned at the end, and at most ``group.window`` positions back, the query's own included."""


def write(cache: torch.Tensor, new: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    """Store ``new`` [T, H, D] at flat slots [T] of ``cache`` [blocks, block_size, H, D], in place."""
    cache.view(-1, *cache.shape[2:]).index_copy_(0, slot_mapping, new)


def gather(cache: torch.Tensor, fresh: torch.Tensor, indices: GatherIndices) -> torch.Tensor:
    """The K or V of sliding prefill rows, [K, H, D]: cached slots, and the step's own tokens where the sentinel stands."""
    out = torch.empty(indices.slots.shape[0], *fresh.shape[1:], dtype=fresh.dtype, device=fresh.device)
    old = cache.view(-1, *cache.shape[2:]).index_select(0, indices.slots.index_select(0, indices.cached))
    out.index_copy_(0, indices.cached, old)
    out.index_copy_(0, indices.fresh, fresh)
    return out


def once(batch: PackedBatch, key: Any, make: Callable[[], Any]) -> Any:
    """What all layers of a step share is made by the first of them and kept in ``batch.derived``."""
    known = batch.derived.get(key)
    if known is None:
        known = batch.derived[key] = make()
    return known
