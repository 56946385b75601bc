"""Attention backends against attention written down one query at a time."""

from __future__ import annotations

import math

import pytest
import torch

from engine.executor.batch_builder import Intervals
from engine.model.attention.base import AttentionBackend, Place, Scores
from engine.model.attention.sdpa import SdpaBackend
from engine.model.attention.self_test import attend, disagreement, small_problem
from engine.plan import PADDING
from tests.model.test_batch_building import BLOCK, build, make_layout, random_slices, slot_of

CPU = torch.device("cpu")
PLACE = Place(CPU, torch.float32, num_heads=6, num_kv_heads=2, head_dim=16, block_size=BLOCK)


def plain_attention(query, keys, values, scores: Scores):
    """One query head over the keys it may see: [D], [L, D], [L, D]."""
    logits = keys @ query * scores.scale
    if scores.softcap:
        logits = scores.softcap * torch.tanh(logits / scores.softcap)
    return torch.softmax(logits, 0) @ values


@pytest.mark.parametrize("intervals", [Intervals(), Intervals(8, 16)], ids=["exact", "padded"])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("window", [None, 6, 11])
@pytest.mark.parametrize("seed", range(6))
def test_sdpa_over_blocks_is_attention_over_each_requests_own_past(seed, window, softcap, intervals):
    """K/V of all earlier positions are put where the tables say; each token must attend to its own request's past, itself
    included, no further back than the window, and to nothing else."""
    layout, generator = make_layout(window), torch.Generator().manual_seed(seed)
    slices = [piece for piece in random_slices(layout, seed) if piece.kind != PADDING]
    batch = build(layout, slices, intervals).buffers.batch
    keys = torch.randn(layout.num_blocks + 2, BLOCK, 2, 16, generator=generator)
    values = torch.randn(keys.shape, generator=generator)
    past = {}
    for piece in slices:
        history = torch.randn(2, piece.start + piece.count, 2, 16, generator=generator)
        past[piece.request] = history
        for position in range(max(0, piece.start - (window or piece.start)), piece.start):
            slot = slot_of(layout, 0, piece.request, position)
            keys.view(-1, 2, 16)[slot], values.view(-1, 2, 16)[slot] = history[:, position]
    query = torch.randn(batch.num_tokens, 6, 16, generator=generator)
    key, value = torch.randn(2, batch.num_tokens, 2, 16, generator=generator)
    rows = [*range(sum(piece.count == 1 for piece in slices)), *range(batch.num_decode, batch.num_rows)]
    ordered = sorted(slices, key=lambda piece: piece.count > 1)
    for row, piece in zip(rows, ordered, strict=True):
        first, last = batch.query_starts[row:row + 2].tolist()
        key[first:last], value[first:last] = past[piece.request][:, piece.start:]
    scores = Scores(0.3, softcap)
    out = SdpaBackend().attend(query, key, value, keys, values, batch, batch.groups[0], scores)
    for row, piece in zip(rows, ordered, strict=True):
        for i in range(piece.count):
            position, token = piece.start + i, int(batch.query_starts[row]) + i
            visible = slice(max(0, position + 1 - (window or position + 1)), position + 1)
            for head in range(6):
                seen = past[piece.request][:, visible, head // 3]
                torch.testing.assert_close(
                    out[token, head], plain_attention(query[token, head], *seen, scores), atol=1e-5, rtol=1e-4
                )
        for position in (
            range(max(0, piece.start + piece.count - (window or math.inf)), piece.start + piece.count)
            if window
            else range(piece.start, piece.start + piece.count)
        ):
            slot = slot_of(layout, 0, piece.request, position)
            assert torch.equal(keys.view(-1, 2, 16)[slot], past[piece.request][0, position])
            assert torch.equal(values.view(-1, 2, 16)[slot], past[piece.request][1, position])


class Wrong(SdpaBackend):
    """Forgets the newest token of each decode row."""

    name = "wrong"

    def decode(self, query, keys, values, batch, group, scores):
        group.kv_lengths.sub_(1)
        try:
            return super().decode(query, keys, values, batch, group, scores)
        finally:
            group.kv_lengths.add_(1)


class Refusing(SdpaBackend):
    name = "refusing"

    def prefill(self, query, keys, values, batch, group, scores):
        raise RuntimeError("page size must be a multiple of 256")


def test_a_kernel_is_trusted_only_if_it_agrees_with_the_reference():
    assert disagreement(SdpaBackend, PLACE) is None
    assert "differs from the reference" in disagreement(Wrong, PLACE)
    assert "refuses this model's shapes (page size must be" in disagreement(Refusing, PLACE)


@pytest.mark.parametrize("window", [None, BLOCK + 3])
def test_the_self_tests_problem_has_what_goes_wrong_in_practice(window):
    """Decode rows and prefill rows, a context that begins in the middle of a block, and in a ring one that has wrapped."""
    batch, _ = small_problem(PLACE, window)
    group = batch.groups[0]
    assert batch.num_decode == 2 and batch.num_prefill == 2
    assert (group.gather is None) == (window is None)
    if window is not None:
        assert int((group.kv_lengths == window).sum()) >= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("softcap", [None, 20.0])
def test_half_precision_stays_near_full_precision(dtype, softcap):
    half = Place(CPU, dtype, 6, 2, 16, BLOCK)
    for window in (None, BLOCK + 3):
        batch, inputs = small_problem(half, window)
        low = attend(SdpaBackend(), batch, inputs, Scores(0.25, softcap))
        high = attend(SdpaBackend(), batch, tuple(tensor.float() for tensor in inputs), Scores(0.25, softcap))
        assert low.dtype == dtype
        torch.testing.assert_close(low.float(), high, atol=4e-2, rtol=4e-2)


def test_all_backends_have_the_interface():
    from engine.model.attention import BACKENDS
    for name, backend in BACKENDS.items():
        assert issubclass(backend, AttentionBackend) and backend.name == name
