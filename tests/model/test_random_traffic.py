"""Everything at once: whoever survives random submissions, cancels and turned knobs on a cache that is too small says exactly
what ``generate`` says."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from engine.engine import Engine
from engine.errors import BatchscopeError
from engine.sampling_params import SamplingParams
from tests.model.helpers import finish, loaded_tiny, make_engine, reference, tiny_prompts

LONGEST_OUTPUT = 24
CHANGES = [{"max_batch_tokens": 5}, {"max_batch_tokens": 40}, {"scheduler_type": "prefill_first"}, {"scheduler_type": "static"},
           {"scheduler_type": "fifo"}, {"block_size": 4}, {"block_size": 8}, {"use_async_batching": False, "use_cuda_graph": False},
           {"use_cuda_graph": True, "use_async_batching": True}, {"use_cuda_graph": True, "use_async_batching": False},
           {"allow_block_sharing": False}, {"allow_block_sharing": True}]


def random_engine(dice: random.Random, kind: str) -> Engine:
    size, graphs = dice.choice([4, 5, 8]), dice.random() < 0.7
    return make_engine(
        loaded_tiny(kind, wide=dice.random() < 0.4), block_size=size,
        num_blocks=(dice.choice([70, 90, 120]) // size + 2) * (3 if kind == "gemma3" else 1),
        max_batch_tokens=dice.choice([6, 17, 64]), max_requests_per_batch=dice.choice([3, 8, 16]), safety_margin=dice.choice([0.0, 0.1]),
        scheduler_type=dice.choice(["fifo", "prefill_first", "static"]), cpu_offload_space=dice.choice([0, 5e-5, 1e-4, 1e-3]),
        use_cuda_graph=graphs, use_async_batching=graphs and dice.random() < 0.7, demotion_policy=dice.choice(["lru", "most_recent"]),
        q_padding_interval_size=dice.choice([1, 4, 16]), kv_padding_interval_size=dice.choice([1, 16, 64]))


def random_request(dice: random.Random, prompts: list[list[int]]) -> tuple[list[int], SamplingParams]:
    prompt = dice.choice(prompts)
    if dice.random() < 0.4:          # a shared beginning
        prompt = prompts[1][:dice.randint(1, len(prompts[1]))] + prompt[:dice.randint(1, len(prompt))]
    length = dice.randint(1, LONGEST_OUTPUT)
    if dice.random() < 0.7:
        return prompt, SamplingParams(max_new_tokens=length, n=dice.choice([1, 1, 1, 2, 3]))
    return prompt, SamplingParams(max_new_tokens=length, temperature=1.0, seed=dice.randint(0, 99), logprobs=dice.choice([0, 2]),
                                  repetition_penalty=dice.choice([1.0, 1.0, 1.3]))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mistral"])
@pytest.mark.parametrize("seed", [5001, 5002, 5003])
def test_random_traffic_under_every_knob_stays_exact(kind, seed):
    dice = random.Random(seed)
    engine, prompts = random_engine(dice, kind), tiny_prompts(6, longest=30, seed=seed % 7)
    loaded = loaded_tiny(kind, wide="wide" in engine.executor.spec.name)
    alive: dict[str, tuple[list[int], SamplingParams]] = {}
    requests = {}

    def submit() -> None:
        prompt, params = random_request(dice, prompts)
        try:
            ids = engine.submit(prompt, params)
        except BatchscopeError:          # it could never fit this cache
            return
        for name in ids:
            alive[name], requests[name] = (prompt, params), engine.requests[name]

    for turn in range(150):
        engine.step()
        move = dice.random()
        if turn < 4 or (move < 0.15 and len(alive) < 20):
            submit()
        elif move < 0.18 and alive:
            name = dice.choice(list(alive))
            if engine.cancel(name):
                del alive[name]
        elif move < 0.22:
            with suppress(BatchscopeError):      # it would strand a request that is here
                engine.configure(dice.choice(CHANGES))
        if turn % 16 == 0:
            engine.check_integrity()
    finish(engine)
    for name, (prompt, params) in alive.items():
        request = requests[name]
        assert request.state.value == "finished", request.finish_reason
        if params.greedy and params.repetition_penalty == 1.0:
            assert request.tokens[len(prompt):] == reference(loaded, [prompt], LONGEST_OUTPUT)[0][:params.max_new_tokens], name
    assert len(alive) > 5
    engine.close()
