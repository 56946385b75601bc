"""The reference: gathers a row's blocks and attends with PyTorch's own operations, on any device and in any float type.

All decode rows go in one call and all prefill rows in another, padded to the longest. The query heads that share a K/V
head are folded into the query dimension, so K and V are never repeated.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from engine.model.attention.base import AttentionBackend, Scores, once
from engine.model.packed_batch import GroupIndices, PackedBatch


class SdpaBackend(AttentionBackend):
    """Attention over gathered blocks; masks and paddings are made once a step and kept in ``batch.derived``."""

    name = "sdpa"
    takes_sinks = True

    def decode(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        rows, heads, size = query.shape
        kv_heads = keys.shape[2]
        key, value = _blocks(keys, group.block_table[:rows]), _blocks(values, group.block_table[:rows])
        bias = once(batch, ("decode", id(group)), lambda: _length_bias(group.kv_lengths[:rows], key.shape[1], query.dtype))
        folded = query.reshape(rows, kv_heads, heads // kv_heads, size)
        out = _attention(folded, key.transpose(1, 2), value.transpose(1, 2), bias[:, None, None, :], scores)
        return out.reshape(rows, heads, size)

    def prefill(self, query, keys, values, batch: PackedBatch, group: GroupIndices, scores: Scores):
        first = batch.num_decode
        key, value = _blocks(keys, group.block_table[first:]), _blocks(values, group.block_table[first:])
        counts, _, _ = self._padding(batch)

        def bias() -> torch.Tensor:
            # Query i of a row stands at position kv_length - count + i and sees everything up to itself.
            last = (group.kv_lengths[first:] - counts)[:, None] + torch.arange(batch.max_query, device=query.device)
            return _bias(torch.arange(key.shape[1], device=query.device) <= last[:, :, None], query.dtype)

        return self._prefill(query, key, value, batch, once(batch, ("prefill", id(group)), bias), scores)

    def prefill_window(self, query, key, value, batch: PackedBatch, group: GroupIndices, scores: Scores):
        gathered = group.gather
        counts, _, _ = self._padding(batch)

        def places() -> torch.Tensor:
            wanted = gathered.starts[:-1, None] + torch.arange(gathered.max_keys, device=query.device)
            return wanted.clamp_(max=key.shape[0] - 1).flatten()

        def bias() -> torch.Tensor:
            lengths = gathered.starts.diff()
            last = (lengths - counts)[:, None] + torch.arange(batch.max_query, device=query.device)
            keys = torch.arange(gathered.max_keys, device=query.device)
            return _bias((keys <= last[:, :, None]) & (keys > last[:, :, None] - group.window), query.dtype)

        index = once(batch, ("places", id(group)), places)
        shape = (batch.num_prefill, gathered.max_keys, *key.shape[1:])
        key, value = key.index_select(0, index).view(shape), value.index_select(0, index).view(shape)
        return self._prefill(query, key, value, batch, once(batch, ("window", id(group)), bias), scores)

    def _prefill(self, query, key, value, batch: PackedBatch, bias, scores: Scores):
        """``query`` packed [N, Hq, D], ``key``/``value`` [P, L, Hkv, D], ``bias`` [P, max_query, L]."""
        _, into, out_of = self._padding(batch)
        rows, longest = batch.num_prefill, batch.max_query
        heads, size, kv_heads = query.shape[1], query.shape[2], key.shape[2]
        share = heads // kv_heads
        padded = query.index_select(0, into).view(rows, longest, kv_heads, share, size)
        folded = padded.permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, share * longest, size)
        wide = once(batch, ("fold", id(bias)), lambda: bias.repeat(1, share, 1))
        out = _attention(folded, key.transpose(1, 2), value.transpose(1, 2), wide[:, None], scores)
        out = out.view(rows, kv_heads, share, longest, size).permute(0, 3, 1, 2, 4).reshape(rows * longest, heads, size)
        return out.index_select(0, out_of)

    @staticmethod
    def _padding(batch: PackedBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token counts of the prefill rows [P]; for each padded query the packed token it takes (any, past a row's end);
        for each packed token its padded place."""
        def make():
            device = batch.query_starts.device
            starts = batch.query_starts[batch.num_decode:] - batch.num_decode
            tokens = batch.num_tokens - batch.num_decode
            into = (starts[:-1, None] + torch.arange(batch.max_query, device=device)).clamp_(max=tokens - 1).flatten()
            token = torch.arange(tokens, device=device, dtype=torch.int32)
            row = torch.searchsorted(starts[1:].contiguous(), token, right=True)
            out_of = row * batch.max_query + token - starts.index_select(0, row)
            return starts.diff(), into, out_of
        return once(batch, "padding", make)


def _attention(query, key, value, bias, scores: Scores):
    """[B, H, Q, D] attending to [B, H, L, D] under an additive bias that broadcasts to [B, 1, Q, L]. Along Q, the query heads
    of a K/V head follow one another."""
    if scores.softcap is None and scores.sinks is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scores.scale)
    logits = torch.matmul(query, key.transpose(2, 3)) * scores.scale
    if scores.softcap is not None:
        logits = scores.softcap * torch.tanh(logits / scores.softcap)
    logits = logits + bias
    if scores.sinks is not None:
        heads, queries = logits.shape[1:3]
        sinks = scores.sinks.view(heads, -1, 1).expand(-1, -1, queries * heads // len(scores.sinks)).reshape(heads, queries, 1)
        logits = torch.cat([logits, sinks.to(logits.dtype).expand(len(logits), -1, -1, -1)], dim=-1)
    shares = torch.softmax(logits, dim=-1, dtype=torch.float32)[..., :key.shape[2]]
    return torch.matmul(shares.to(query.dtype), value)


def _blocks(cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """All slots of the blocks in ``table`` [R, W], as [R, W · block_size, H, D]; whole blocks are copied, which is faster
    than picking slots."""
    return cache.index_select(0, table.flatten()).view(table.shape[0], -1, *cache.shape[2:])


def _length_bias(lengths: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    return _bias(torch.arange(width, device=lengths.device) < lengths[:, None], dtype)


def _bias(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where ``visible``, -inf elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))

