"""Before a kernel is trusted with answers, it has to agree with the reference on a small paged problem on this device."""

from __future__ import annotations

from functools import cache

import torch

from engine.model.attention.base import AttentionBackend, Place, Scores
from engine.model.attention.sdpa import SdpaBackend
from engine.model.packed_batch import GatherIndices, GroupIndices, PackedBatch

#: Largest difference allowed between two ways to add up the same half-precision products of unit variance.
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 4e-2, torch.float32: 1e-4}


@cache
def disagreement(backend: type[AttentionBackend], place: Place) -> str | None:
    """``None`` when ``backend`` gives what the reference gives; else what happened, as the end of a sentence."""
    for window in (None, place.block_size + 3):
        batch, inputs = small_problem(place, window)
        scores = Scores(place.head_dim ** -0.5, 20.0 if place.softcap else None)
        expected = attend(SdpaBackend(), batch, inputs, scores)
        try:
            with torch.inference_mode():
                actual = attend(backend(), batch, inputs, scores)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            text = str(error).strip().splitlines()
            return f"its kernel refuses this model's shapes ({text[0][:120] if text else type(error).__name__})"
        worst = (expected.float() - actual.float()).abs().max().item()
        if not worst <= TOLERANCE[place.dtype]:
            return f"its kernel differs from the reference by {worst:.2g} on this device"
    return None


def attend(backend: AttentionBackend, batch: PackedBatch, inputs: tuple[torch.Tensor, ...], scores: Scores) -> torch.Tensor:
    """One layer's attention on a fresh copy of the cache; ``inputs`` as :func:`small_problem` made them."""
    query, key, value, keys, values = inputs
    batch.derived.clear()
    return backend.attend(query, key, value, keys.clone(), values.clone(), batch, batch.groups[0], scores)


def small_problem(place: Place, window: int | None) -> tuple[PackedBatch, tuple[torch.Tensor, ...]]:
    """Two decode rows and two prefill slices, one of them a continuation, on scattered blocks of a random cache.

    Returns the batch and (query, key, value, keys, values). With ``window`` the group slides.
    """
    size = place.block_size
    starts, counts = [size + 2, 2, size + 1, 0], [1, 1, size // 2 + 2, 5]
    blocks_per_row, device = 3, place.device
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(4 * blocks_per_row, generator=generator)
    table = order.view(4, blocks_per_row)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, place.dtype)

    def slot(row: int, position: int) -> int:
        ring = position if window is None else position % window
        return int(table[row, ring // size]) * size + ring % size

    tokens = [(row, position) for row in range(4) for position in range(starts[row], starts[row] + counts[row])]
    ends = [start + count for start, count in zip(starts, counts, strict=True)]
    spare = 4 * blocks_per_row * size            # the first slot of a block nobody reads
    mapping = [slot(row, position) if window is None or position >= ends[row] - window else spare for row, position in tokens]
    lengths = ends if window is None else [min(end, window) for end in ends]
    gathered = None
    if window is not None:
        keys_of = [
            [slot(row, p) for p in range(max(0, starts[row] - window + 1), starts[row])] + [-1] * counts[row] for row in (2, 3)
        ]
        flat = torch.tensor(keys_of[0] + keys_of[1])
        gathered = GatherIndices(
            slots=flat.to(device), starts=torch.tensor([0, len(keys_of[0]), len(flat)], dtype=torch.int32, device=device),
            cached=(flat >= 0).nonzero()[:, 0].to(device), fresh=(flat < 0).nonzero()[:, 0].to(device),
            max_keys=max(map(len, keys_of)))
    query_starts = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32, device=device)
    group = GroupIndices(window, table.to(device, torch.int32), torch.tensor(mapping, device=device),
                         torch.tensor(lengths, dtype=torch.int32, device=device), max(lengths), gathered)
    total = len(tokens)
    batch = PackedBatch(
        torch.zeros(total, dtype=torch.int64, device=device),
        torch.tensor([position for _, position in tokens], device=device),
        query_starts,
        2,
        max(counts[2:]),
        [group],
        torch.tensor([0], device=device),
    )
    kv_shape = (4 * blocks_per_row + 1, size, place.num_kv_heads, place.head_dim)
    new_shape = (total, place.num_kv_heads, place.head_dim)
    return batch, (random(total, place.num_heads, place.head_dim), random(*new_shape), random(*new_shape),
                   random(*kv_shape), random(*kv_shape))
