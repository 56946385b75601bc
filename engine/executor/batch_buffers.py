"""The memory behind a packed batch: all its index tensors as views of two flat buffers.

On CUDA the host side is pinned and a step's indices go over in two copies. Buffers of one shape can be filled again and
again without any tensor moving, which is what a recorded graph needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from engine.model.packed_batch import GatherIndices, GroupIndices, PackedBatch


@dataclass(frozen=True, slots=True)
class GroupShape:
    """``width``: columns of the block table; ``max_kv``: longest row; ``num_keys``/``max_keys``: entries gathered for
    sliding prefill rows, in all and for the longest row (0: nothing is gathered)."""

    width: int
    max_kv: int
    num_keys: int = 0
    max_keys: int = 0


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Every number that a kernel launch of the step has baked in. Two steps may share a recorded graph only if all of
    them are equal; so this, whole, is the key of the graph cache."""

    num_tokens: int
    num_decode: int
    num_prefill: int
    max_query: int
    num_samples: int
    groups: tuple[GroupShape, ...]

    @property
    def num_rows(self) -> int:
        return self.num_decode + self.num_prefill


class _Carver:
    """Cuts named pieces from one flat buffer, on the host (numpy) and on the device (torch) alike."""

    def __init__(self, sizes: list[tuple[str, tuple[int, ...]]], dtype: torch.dtype, device: torch.device) -> None:
        counts = [prod(shape) for _, shape in sizes]
        self.host_tensor = torch.zeros(sum(counts), dtype=dtype, pin_memory=device.type == "cuda")
        # Empty on the device: a kernel that zeroes it could run after the upload, which is on another stream.
        self.device_tensor = self.host_tensor if device.type == "cpu" else torch.empty(sum(counts), dtype=dtype, device=device)
        host_array = self.host_tensor.numpy()
        self.host: dict[str, np.ndarray] = {}
        self.device: dict[str, torch.Tensor] = {}
        offset = 0
        for (name, shape), count in zip(sizes, counts, strict=True):
            self.host[name] = host_array[offset:offset + count].reshape(shape)
            self.device[name] = self.device_tensor[offset:offset + count].view(shape)
            offset += count

    def upload(self) -> None:
        if self.device_tensor is not self.host_tensor:
            self.device_tensor.copy_(self.host_tensor, non_blocking=True)


class BatchBuffers:
    """Buffers for batches of one shape. Fill ``host`` (numpy arrays by name), :meth:`upload`, then run ``batch``."""

    def __init__(self, shape: BatchShape, windows: tuple[int | None, ...], device: torch.device) -> None:
        self.shape = shape
        rows, tokens = shape.num_rows, shape.num_tokens
        prefill_tokens = tokens - shape.num_decode
        wide: list[tuple[str, tuple[int, ...]]] = [
            ("input_ids", (tokens,)), ("position_ids", (tokens,)), ("carry", (tokens,)), ("sample_rows", (shape.num_samples,))]
        narrow: list[tuple[str, tuple[int, ...]]] = [("query_starts", (rows + 1,))]
        for index, group in enumerate(shape.groups):
            wide.append((f"slot_mapping{index}", (tokens,)))
            narrow += [(f"block_table{index}", (rows, group.width)), (f"kv_lengths{index}", (rows,))]
            if group.num_keys:
                wide += [(f"slots{index}", (group.num_keys,)), (f"fresh{index}", (prefill_tokens,)),
                         (f"cached{index}", (group.num_keys - prefill_tokens,))]
                narrow.append((f"starts{index}", (shape.num_prefill + 1,)))
        self._wide = _Carver(wide, torch.int64, device)
        self._narrow = _Carver(narrow, torch.int32, device)
        self.host = {**self._wide.host, **self._narrow.host}
        parts = {**self._wide.device, **self._narrow.device}
        #: int64 [T]: which sample of the step before becomes this input token; -1 where ``input_ids`` knows it.
        self.carry = parts["carry"]
        self.batch = PackedBatch(
            input_ids=parts["input_ids"], position_ids=parts["position_ids"], query_starts=parts["query_starts"],
            num_decode=shape.num_decode, max_query=shape.max_query, sample_rows=parts["sample_rows"],
            groups=[GroupIndices(
                window=windows[index], block_table=parts[f"block_table{index}"], slot_mapping=parts[f"slot_mapping{index}"],
                kv_lengths=parts[f"kv_lengths{index}"], max_kv=group.max_kv,
                gather=GatherIndices(slots=parts[f"slots{index}"], starts=parts[f"starts{index}"],
                                     cached=parts[f"cached{index}"], fresh=parts[f"fresh{index}"],
                                     max_keys=group.max_keys) if group.num_keys else None)
                for index, group in enumerate(shape.groups)])

    def upload(self) -> None:
        """Bring the indices to the device, in stream order."""
        self._wide.upload()
        self._narrow.upload()

    def copy_from(self, other: BatchBuffers) -> None:
        """Take over what another pair of buffers of the same shape has on the device, in stream order."""
        self._wide.device_tensor.copy_(other._wide.device_tensor, non_blocking=True)
        self._narrow.device_tensor.copy_(other._narrow.device_tensor, non_blocking=True)
        self.batch.num_padding = self.batch.query_padding = other.batch.num_padding

    def take_carried(self, tokens: torch.Tensor) -> None:
        """Fill in the input tokens that are samples of the step before (``tokens``, int64 [S], on the device)."""
        known = self.carry < 0
        carried = tokens.index_select(0, self.carry.clamp(min=0))
        self.batch.input_ids.copy_(torch.where(known, self.batch.input_ids, carried))
