"""This project's own CPU kernel: reads the paged cache through the block table, with no gather and no mask.

For models that the fused decoder does not know; there the same kernel is part of the one native call of a step.
"""

from __future__ import annotations

import ctypes

import torch

from engine.model.attention.base import Place, Scores
from engine.model.attention.sdpa import SdpaBackend
from engine.model.attention.self_test import disagreement
from engine.model.native_library import SUFFIX, NativeUnavailable, load_library
from engine.model.packed_batch import GroupIndices, PackedBatch

#: Query heads that share a K/V head are computed together, and the kernel's buffers hold this many.
MAX_SHARE = 48


class _Call(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in ("rows", "table_width", "block_size", "query_stride")),
                *((name, ctypes.c_int32) for name in ("query_heads", "kv_heads", "head_size", "threads")),
                ("scale", ctypes.c_float),
                *((name, ctypes.c_void_p) for name in ("query_starts", "block_table", "kv_lengths", "queries", "keys", "values", "out"))]


class NativeBackend(SdpaBackend):
    """Decode rows of any group and prefill rows of full groups natively; prefill rows of a sliding group, whose keys lie partly in the
    cache and partly in the step, the way the reference does it."""

    name = "native"

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        if place.device.type != "cpu":
            return "the native kernel is for CPUs"
        if place.dtype not in SUFFIX:
            return "the native kernel computes in float32 or bfloat16 only"
        if place.softcap:
            return "this model caps its attention scores, which the native kernel does not do"
        if place.head_dim % 32 or place.num_heads // place.num_kv_heads > MAX_SHARE:
            return f"the native kernel needs heads of a multiple of 32, at most {MAX_SHARE} of them for a K/V head"
        try:
            load_library()
        except NativeUnavailable as error:
            return str(error)
        return disagreement(cls, place)

    def decode(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        return _paged(query, keys, values, batch.query_starts[:rows + 1], group.block_table[:rows], group.kv_lengths[:rows], scores)

    def prefill(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        return _paged(query, keys, values, batch.query_starts[rows:] - rows, group.block_table[rows:], group.kv_lengths[rows:], scores)


def _paged(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, query_starts: torch.Tensor, block_table: torch.Tensor,
           kv_lengths: torch.Tensor, scores: Scores) -> torch.Tensor:
    """Rows of ``query`` [T, Hq, D] attend causally, aligned at the end, to the first ``kv_lengths`` slots of their tables."""
    query = query.contiguous()
    out = torch.empty_like(query)
    call = _Call(rows=block_table.shape[0], table_width=block_table.stride(0), block_size=keys.shape[1], query_stride=query.stride(0),
                 query_heads=query.shape[1], kv_heads=keys.shape[2], head_size=query.shape[2], threads=torch.get_num_threads(),
                 scale=scores.scale, query_starts=query_starts.data_ptr(), block_table=block_table.data_ptr(),
                 kv_lengths=kv_lengths.data_ptr(), queries=query.data_ptr(), keys=keys.data_ptr(), values=values.data_ptr(),
                 out=out.data_ptr())
    getattr(load_library(), f"paged_attention_{SUFFIX[query.dtype]}")(ctypes.byref(call))
    return out
