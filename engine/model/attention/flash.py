"""flash-attn over a block table (CUDA): version 3 on Hopper where its module is there, else version 2."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import torch

from engine.model.attention.base import AttentionBackend, Place, Scores, once, write
from engine.model.attention.self_test import disagreement
from engine.model.packed_batch import GroupIndices, PackedBatch

#: Modules that offer version 3's functions: flash-attn's own build, and the forward-only package fa3-fwd.
VERSION_3_MODULES = ("flash_attn_interface", "fa3_fwd_interface")
#: Version 2 wants pages of a multiple of this many tokens.
VERSION_2_PAGE = 256


class FlashBackend(AttentionBackend):
    """Version 3 takes all rows in one kernel; version 2 splits long contexts of decode rows in a kernel of their own."""

    name = "flash"

    def __init__(self) -> None:
        self._version, self._module = find_module()

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        if place.device.type != "cuda":
            return "flash-attn needs a CUDA device"
        version, module = find_module()
        if module is None:
            return "the package flash-attn is not installed"
        if place.dtype not in (torch.float16, torch.bfloat16):
            return "flash-attn computes in float16 or bfloat16 only"
        if version == 2 and place.block_size % VERSION_2_PAGE:
            return f"flash-attn 2 needs a block_size that is a multiple of {VERSION_2_PAGE}"
        return disagreement(cls, place)

    def attend(self, query, key, value, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        if self._version == 2 or group.gather is not None:
            return super().attend(query, key, value, keys, values, batch, group, scores)
        write(keys, key, group.slot_mapping)
        write(values, value, group.slot_mapping)
        return self._paged_3(
            query, keys, values, batch.query_starts, group.block_table, group.kv_lengths, max(1, batch.max_query), scores
        )

    def decode(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        table, lengths = group.block_table[:rows], group.kv_lengths[:rows]
        if self._version == 3:
            return self._paged_3(query, keys, values, batch.query_starts[:rows + 1], table, lengths, 1, scores)
        return self._module.flash_attn_with_kvcache(
            query.contiguous()[:, None], keys, values, cache_seqlens=lengths, block_table=table, softmax_scale=scores.scale,
            causal=True, softcap=scores.softcap or 0.0)[:, 0]

    def prefill(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        query_starts, table, lengths = batch.query_starts[rows:] - rows, group.block_table[rows:], group.kv_lengths[rows:]
        if self._version == 3:
            return self._paged_3(query, keys, values, query_starts, table, lengths, batch.max_query, scores)
        key_starts = once(batch, ("key_starts", id(group)),
                          lambda: torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)))
        return self._module.flash_attn_varlen_func(
            query.contiguous(), keys, values, query_starts, key_starts, batch.max_query, group.max_kv, softmax_scale=scores.scale,
            causal=True, softcap=scores.softcap or 0.0, block_table=table)

    def prefill_window(self, query, key, value, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows = batch.num_decode
        out = self._module.flash_attn_varlen_func(
            query.contiguous(), key, value, batch.query_starts[rows:] - rows, group.gather.starts, max_seqlen_q=batch.max_query,
            max_seqlen_k=group.gather.max_keys, softmax_scale=scores.scale, causal=True, window_size=(group.window - 1, 0),
            softcap=scores.softcap or 0.0)
        return out[0] if isinstance(out, tuple) else out

    def _paged_3(self, query, keys, values, query_starts, table, lengths, max_query: int, scores: Scores):
        out = self._module.flash_attn_with_kvcache(
            query.contiguous(), keys, values, cache_seqlens=lengths, page_table=table, cu_seqlens_q=query_starts,
            max_seqlen_q=max_query, softmax_scale=scores.scale, causal=True, softcap=scores.softcap or 0.0)
        return out[0] if isinstance(out, tuple) else out


@cache
def find_module() -> tuple[int, Any]:
    """(version, module) of the flash-attn that can run on this device; (0, None) without one."""
    hopper = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
    for name in VERSION_3_MODULES if hopper else ():
        try:
            return 3, importlib.import_module(name)
        except (ImportError, OSError):
            continue
    try:
        return 2, importlib.import_module("flash_attn")
    except (ImportError, OSError):
        return 0, None
