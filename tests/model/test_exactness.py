"""Greedy output in fp32 is, token by token, what transformers' ``generate`` gives, however the work was cut up and packed."""

from __future__ import annotations

import pytest

from engine.sampling_params import SamplingParams
from tests.model.helpers import loaded_tiny, make_engine, reference, run, tiny_prompts
from tests.tiny_models import KINDS

GREEDY = SamplingParams(max_new_tokens=20)


@pytest.mark.parametrize("max_batch_tokens", [8, 64, 512])
@pytest.mark.parametrize("block_size", [4, 16, 256])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_24_prompts_together_equal_generate(kind, block_size, max_batch_tokens):
    loaded, prompts = loaded_tiny(kind), tiny_prompts(24)
    engine = make_engine(loaded, block_size=block_size, max_batch_tokens=max_batch_tokens, max_requests_per_batch=24,
                         num_blocks=24 * 64 // block_size + 200)
    assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)
