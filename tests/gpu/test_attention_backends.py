"""Every attention backend that this GPU can run gives what the CPU reference gives in fp32."""

from __future__ import annotations

import pytest
import torch

from engine.model.attention import BACKENDS, choose_backend
from engine.model.attention.base import Place, Scores
from engine.model.attention.sdpa import SdpaBackend
from engine.model.attention.self_test import TOLERANCE, attend, small_problem

CPU = torch.device("cpu")


@pytest.mark.parametrize("softcap", [None, 20.0])
@pytest.mark.parametrize("heads", [(8, 8), (9, 3), (8, 1)])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("block_size", [16, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["flash", "varlen", "sdpa"])
def test_backend_equals_the_reference(device, name, dtype, block_size, head_dim, heads, softcap):
    place = Place(device, dtype, *heads, head_dim, block_size, softcap is not None)
    why = BACKENDS[name].why_not(place)
    if why:
        assert "differs from the reference" not in why, f"{name} gives wrong answers: {why}"
        pytest.skip(why)
    for window in (None, block_size + 3):
        batch, inputs = small_problem(place, window)
        on_cpu, _ = small_problem(Place(CPU, dtype, *heads, head_dim, block_size), window)
        scores = Scores(head_dim ** -0.5, softcap)
        expected = attend(SdpaBackend(), on_cpu, tuple(tensor.float().cpu() for tensor in inputs), scores)
        actual = attend(BACKENDS[name](), batch, inputs, scores)
        torch.testing.assert_close(actual.float().cpu(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_the_automatic_choice_is_a_kernel_with_block_tables_where_there_is_one(device):
    place = Place(device, torch.bfloat16, 9, 3, 64, 256)
    backend, _ = choose_backend("auto", place)
    possible = [name for name in ("flash", "varlen") if BACKENDS[name].why_not(place) is None]
    assert backend.name == (possible[0] if possible else "sdpa")


def test_fp32_falls_back_to_the_reference_and_says_why(device):
    backend, notes = choose_backend("varlen", Place(device, torch.float32, 8, 8, 64, 256))
    assert backend.name == "sdpa"
    assert any("float16 or bfloat16" in note for note in notes)
