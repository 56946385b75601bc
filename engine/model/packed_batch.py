"""The tensors of one step: the contract between whoever prepares a step and whoever runs the model on it.

The query tokens of all requests lie in one row, without gaps:

    tokens   | d0 | d1 | d2 | p0 p0 p0 p0 | p1 p1 |        T = num_tokens
    rows       0    1    2    3             4              R = num_rows
    query_starts = 0 1 2 3 7 9

Decode rows (one query token each) come first, then rows of a prefill slice, each in the order of the plan; results are in
the order of the plan altogether. Where shapes are padded (graphs), padding rows are decode rows behind the real ones: they read the
block ``layout.padding_read`` and write to ``layout.padding_write``, never to a real slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import torch

from engine.cache.layer_groups import CacheLayout


@dataclass(slots=True)
class GroupIndices:
    """Where one layer group keeps the K/V of the step's rows.

    A **full** group keeps position p of a row at slot ``p % block_size`` of block ``block_table[row, p // block_size]``.
    A **sliding** group keeps it in a ring of ``window`` slots: ring slot ``r = p % window``, at
    ``block_table[row, r // block_size]``, ``r % block_size``. A query at position q sees positions q-window+1 … q.

    ``slot_mapping`` says where each token of the step is written: ``block * block_size + offset`` in the flattened
    cache. Tokens of a slice longer than the window that would be overwritten at once go to the padding-write block, so no
    two tokens share a real slot.

    For a decode row, K/V may be written first and then the first ``kv_lengths[row]`` slots of its table read, in any order:
    that is exactly what it may see, in a sliding group too (there ``kv_lengths`` is capped at the window).

    For a prefill row of a full group: write, then read causally through the table, aligned at the end
    (query i of ``count`` sees positions 0 … ``kv_lengths[row] - count + i``). For a prefill row of a sliding group the ring
    must be read **before** it is written: ``gather`` has, per prefill row, the cached slots it still needs and
    :data:`SENTINEL` for each of its own new tokens (see ``GatherIndices``).
    """

    window: int | None
    block_table: torch.Tensor          # int32 [R, width]; entries past a row's blocks are padding_read
    slot_mapping: torch.Tensor         # int64 [T]
    kv_lengths: torch.Tensor           # int32 [R]: readable positions, the row's new tokens included; at most window if sliding
    max_kv: int                        # at least the largest kv_length; padded where shapes are
    gather: GatherIndices | None = None    # sliding groups with prefill rows only


@dataclass(slots=True)
class GatherIndices:
    """The K/V that the prefill rows of a sliding group attend to, as one packed list in order of position.

    Row i (of the prefill rows) owns entries ``starts[i] … starts[i+1]-1``: up to window-1 cached positions, then its own
    new tokens. ``slots`` holds a flat cache slot, or SENTINEL (-1) for "the next new token of this row"; ``fresh`` are the
    places of those sentinels in ``slots``, in the order of the step's prefill tokens, and ``cached`` the other places.
    """

    slots: torch.Tensor                # int64 [K]
    starts: torch.Tensor               # int32 [P + 1]
    cached: torch.Tensor               # int64: places in slots that hold a real slot
    fresh: torch.Tensor                # int64 [T - num_decode]: places in slots that hold SENTINEL
    max_keys: int                      # longest row


@dataclass(slots=True)
class PackedBatch:
    """One step's inputs. ``T`` tokens, ``R`` rows, ``S`` sampled rows; all tensors on the model's device."""

    input_ids: torch.Tensor            # int64 [T]
    position_ids: torch.Tensor         # int64 [T]
    query_starts: torch.Tensor         # int32 [R + 1]; also called cu_seqlens_q
    num_decode: int                    # rows 0 … num_decode-1 have one query token (padding rows included)
    max_query: int                     # longest prefill row, 0 without prefill rows
    groups: list[GroupIndices]         # in the order of layout.groups
    sample_rows: torch.Tensor          # int64 [S]: tokens whose logits are wanted, in the order of the plan's slices
    num_padding: int = 0               # padding rows among the decode rows, the last of them
    query_padding: int = 0  # tokens added in all
    derived: dict[Any, Any] = field(
        default_factory=dict
    )  # what a forward pass works out once for all layers; emptied before each

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_rows(self) -> int:
        return self.query_starts.shape[0] - 1

    @property
    def num_prefill(self) -> int:
        """Rows with a prefill slice."""
        return self.num_rows - self.num_decode


class PagedKVCache:
    """The K/V tensors of one room: one allocation, seen as a K and a V tensor for each place in a layer group.

    All groups have equally many layers; the layers at place ``j`` of every group share tensor ``j`` and keep apart by their
    block numbers. ``keys[j]`` and ``values[j]`` have shape [num_blocks + 2, block_size, num_kv_heads, head_dim].
    """

    def __init__(self, layout: CacheLayout, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.layout = layout
        places = len(layout.groups[0].layers)
        #: [places, 2 (K, V), num_blocks + 2, block_size, num_kv_heads, head_dim]. Zeros, not garbage: slots that were
        #: never written are multiplied with a probability of zero, and 0 · NaN would still be NaN.
        self.storage = _zeros((places, 2, layout.num_blocks + 2, layout.block_size, num_kv_heads, head_dim), dtype, device)
        self.keys = [self.storage[place, 0] for place in range(places)]
        self.values = [self.storage[place, 1] for place in range(places)]
        #: layer → (group, place in the group)
        self.place_of_layer = {layer: (group.index, place) for group in layout.groups for place, layer in enumerate(group.layers)}

    @property
    def num_kv_heads(self) -> int:
        return self.storage.shape[4]

    @property
    def head_dim(self) -> int:
        return self.storage.shape[5]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on a CPU as pages that the system fills in when they are first touched, so that a large cache costs no time
    and no memory before it is used. Aligned to 64 bytes."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = prod(shape) * dtype.itemsize
    memory = np.zeros(size + 64, np.uint8)
    offset = -memory.ctypes.data % 64
    return torch.from_numpy(memory[offset:offset + size]).view(dtype).view(shape)


class Forward(Protocol):
    """Runs the model on a packed batch. Implementations: ``PagedForward`` (any transformers decoder), ``FusedDecoder``.

    It may also offer ``greedy(batch, cache)``: the most likely token of each sampled row, int64 [S], the first of equals.
    """

    name: str

    def __call__(self, batch: PackedBatch, cache: PagedKVCache) -> torch.Tensor:
        """Write the K/V of all tokens into ``cache`` and return the logits, [S, vocab_size], of ``batch.sample_rows``,
        in any float type, with the model's own final scaling and soft-capping applied."""
        ...
