"""A sampled token depends on its seed, its position and its logits, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.model.sampling import logprobs_of, sample, sampling_inputs, uniform
from engine.plan import DECODE, Slice
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.model.helpers import finish, loaded_tiny, make_engine, outputs, run, tiny_prompts

CPU = torch.device("cpu")


def slices(*params: SamplingParams, seeds=None, position: int = 10) -> list[Slice]:
    seeds = seeds or range(1, len(params) + 1)
    return [Slice(Request(str(i), i, [3, 4, 5] * 4, 3, item, seed=seed), position - 1, 1, DECODE, True)
            for i, (item, seed) in enumerate(zip(params, seeds, strict=True))]


def tokens(logits: torch.Tensor, *params: SamplingParams, **options) -> list[int]:
    return sample(logits, sampling_inputs(slices(*params, **options), CPU)).tokens.tolist()


def many(logits: torch.Tensor, params: SamplingParams, draws: int = 4000) -> np.ndarray:
    """How often each token of one row of logits is drawn by requests that differ in their seed."""
    pieces = slices(*[params] * draws, seeds=range(draws))
    drawn = sample(logits.expand(draws, -1), sampling_inputs(pieces, CPU)).tokens
    return torch.bincount(drawn, minlength=logits.shape[-1]).numpy() / draws


def test_greedy_takes_the_most_likely_token():
    logits = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    assert tokens(logits, *[SamplingParams()] * 5) == logits.argmax(-1).tolist()


def test_frequencies_follow_the_tempered_distribution():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits / temperature, -1).numpy()
        assert np.abs(many(logits, SamplingParams(temperature=temperature)) - expected).max() < 0.03


def test_top_k_top_p_and_min_p_cut_where_they_should():
    logits = torch.log(torch.tensor([0.4, 0.05, 0.3, 0.2, 0.05]))
    cases = {SamplingParams(temperature=1.0, top_k=2): {0, 2}, SamplingParams(temperature=1.0, top_p=0.65): {0, 2},
             SamplingParams(temperature=1.0, top_p=0.75): {0, 2, 3}, SamplingParams(temperature=1.0, min_p=0.45): {0, 2, 3},
             SamplingParams(temperature=1.0, min_p=0.6): {0, 2}, SamplingParams(temperature=1.0, top_p=0.001): {0},
             SamplingParams(temperature=1.0, top_k=3, top_p=0.5): {0, 2}, SamplingParams(temperature=10.0, top_k=1): {0},
             SamplingParams(temperature=1.0, min_p=1.0): {0}}
    for params, allowed in cases.items():
        frequency = many(logits, params, 600)
        assert {int(token) for token in np.flatnonzero(frequency)} == allowed, params


def test_the_nucleus_of_a_nearly_flat_distribution_is_half_of_it():
    size = 2000
    logits = torch.linspace(0.0, 1e-3, size)
    drawn = np.flatnonzero(many(logits, SamplingParams(temperature=1.0, top_p=0.5), 4000))
    assert drawn.min() >= size // 2 - 5
    assert len(drawn) > 0.8 * size / 2


def test_other_rows_and_their_filters_do_not_change_a_row():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 3000, generator=generator)
    params = [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=20),
        SamplingParams(temperature=1.3, top_p=0.9),
        SamplingParams(),
        SamplingParams(temperature=1.0, min_p=0.05, top_p=0.8),
        SamplingParams(temperature=2.0, repetition_penalty=1.5),
    ]
    together = tokens(logits, *params)
    for row in range(6):
        assert tokens(logits[row:row + 1], params[row], seeds=[row + 1]) == [together[row]]


def test_the_noise_of_seeds_and_positions_is_unrelated():
    seeds, positions = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200, dtype=np.uint64))
    noise = uniform(seeds, positions)
    assert noise.min() >= 0.0 and noise.max() < 1.0
    assert abs(noise.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.25
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.25
    assert len(np.unique(noise)) == noise.size


def test_repetition_penalty_pushes_seen_tokens_down_whatever_their_sign():
    positive = torch.tensor([[0.7, 0.0, 0.0, 2.0, 1.9, 1.8, 0.0]])      # 3, 4 and 5 have been seen
    negative = torch.tensor([[-9.0, -9.0, -9.0, -1.0, -1.0, -1.0, -1.1]])
    before = positive.clone()
    assert (tokens(positive, SamplingParams()), tokens(positive, SamplingParams(repetition_penalty=3.0))) == ([3], [0])
    assert (tokens(negative, SamplingParams()), tokens(negative, SamplingParams(repetition_penalty=3.0))) == ([3], [6])
    assert torch.equal(positive, before), "the caller's logits are not touched"


def test_logprobs_are_the_models_own_and_only_for_who_asked():
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    inputs = sampling_inputs(
        slices(SamplingParams(logprobs=2, temperature=5.0), SamplingParams(), SamplingParams(logprobs=4)), CPU
    )
    sampled = sample(logits, inputs)
    first, none, third = logprobs_of(sampled, inputs)
    expected = torch.log_softmax(logits, -1)
    assert none is None
    assert len(first[1]) == 2 and len(third[1]) == 4
    assert first[0] == pytest.approx(expected[0, sampled.tokens[0]].item())
    assert [token for token, _ in third[1]] == expected[2].topk(4).indices.tolist()
    assert third[1][0] == (sampled.tokens[2].item(), pytest.approx(third[0]))


SAMPLED = [
    SamplingParams(max_new_tokens=15, temperature=1.0, seed=11),
    SamplingParams(max_new_tokens=15, temperature=0.8, top_k=12, seed=12),
    SamplingParams(max_new_tokens=15, temperature=1.2, top_p=0.8, seed=13),
    SamplingParams(max_new_tokens=15, temperature=1.0, min_p=0.1, seed=14),
    SamplingParams(max_new_tokens=15, temperature=0.9, repetition_penalty=1.3, seed=15),
]


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_same_seed_same_text_whatever_else_is_in_the_batch(kind):
    loaded, prompts = loaded_tiny(kind), tiny_prompts(5, seed=20)
    alone = [
        run(make_engine(loaded, block_size=4, num_blocks=200), [prompt], params)[0] for prompt, params in zip(prompts, SAMPLED, strict=True)
    ]
    assert len({tuple(text) for text in alone}) == 5
    for knobs in (
        {"max_batch_tokens": 16},
        {"use_cuda_graph": True, "use_async_batching": True},
        {"num_blocks": 24, "safety_margin": 0.0},
    ):
        engine = make_engine(loaded, **{"block_size": 4, "num_blocks": 300, **knobs})
        for prompt in tiny_prompts(7, longest=20, seed=21):
            engine.submit(prompt, SamplingParams(max_new_tokens=8, temperature=1.0, top_k=5))
        ids = [engine.submit(prompt, params)[0] for prompt, params in zip(prompts, SAMPLED, strict=True)]
        finish(engine)
        assert outputs(engine, ids) == alone
        engine.close()


def test_samples_of_one_prompt_differ_and_repeat():
    loaded, prompt = loaded_tiny("llama"), tiny_prompts(2, seed=22)[1]
    params = SamplingParams(max_new_tokens=10, temperature=1.5, n=4, seed=7)
    texts = []
    for _ in range(2):
        engine = make_engine(loaded, block_size=4, num_blocks=100)
        ids = engine.submit(prompt, params)
        finish(engine)
        texts.append(outputs(engine, ids))
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts[0]}) == 4
