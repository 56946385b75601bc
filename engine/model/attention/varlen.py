"""PyTorch's own variable-length attention over a block table (CUDA; no package beside torch)."""

from __future__ import annotations

import inspect
from functools import cache

import torch

from engine.model.attention.base import AttentionBackend, Place, Scores, write
from engine.model.attention.self_test import disagreement
from engine.model.packed_batch import GroupIndices, PackedBatch

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:          # torch before 2.10
    varlen_attn = None


class VarlenBackend(AttentionBackend):
    """All rows of a step, decode and prefill, in one kernel."""

    name = "varlen"

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        if place.device.type != "cuda":
            return "PyTorch's variable-length attention needs a CUDA device"
        missing = missing_arguments()
        if missing:
            return f"PyTorch {torch.__version__} has no variable-length attention with {missing}"
        if place.dtype not in (torch.float16, torch.bfloat16):
            return "PyTorch's variable-length attention computes in float16 or bfloat16 only"
        if place.softcap:
            return "this model caps its attention scores, which PyTorch's variable-length attention does not do"
        return disagreement(cls, place)

    def attend(self, query, key, value, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        if group.gather is not None:
            return super().attend(query, key, value, keys, values, batch, group, scores)
        write(keys, key, group.slot_mapping)
        write(values, value, group.slot_mapping)
        return self._paged(query, keys, values, batch.query_starts, group.block_table, group.kv_lengths,
                           max(1, batch.max_query), group.max_kv, scores)

    def decode(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        return self._paged(query, keys, values, batch.query_starts[:rows + 1], group.block_table[:rows], group.kv_lengths[:rows],
                           1, group.max_kv, scores)

    def prefill(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        return self._paged(
            query,
            keys,
            values,
            batch.query_starts[rows:] - rows,
            group.block_table[rows:],
            group.kv_lengths[rows:],
            batch.max_query,
            group.max_kv,
            scores,
        )

    def prefill_window(self, query, key, value, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        return varlen_attn(query.contiguous(), key, value, batch.query_starts[rows:] - rows, group.gather.starts, batch.max_query,
                           group.gather.max_keys, scale=scores.scale, window_size=(group.window - 1, 0),
                           enable_gqa=query.shape[1] != key.shape[1])

    @staticmethod
    def _paged(query, keys, values, query_starts, block_table, lengths, max_query: int, max_kv: int, scores: Scores):
        return varlen_attn(query.contiguous(), keys, values, query_starts, None, max_query, max_kv, scale=scores.scale,
                           window_size=(-1, 0), enable_gqa=query.shape[1] != keys.shape[2], seqused_k=lengths,
                           block_table=block_table)


@cache
def missing_arguments() -> str:
    """What this PyTorch's ``varlen_attn`` lacks, in words; empty when it has all that is needed."""
    if varlen_attn is None:
        return "block tables"
    known = inspect.signature(varlen_attn).parameters
    words = {"block_table": "block tables", "seqused_k": "cache lengths", "enable_gqa": "grouped heads", "window_size": "windows"}
    return ", ".join(word for argument, word in words.items() if argument not in known)
