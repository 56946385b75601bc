"""A run is a function of (config, journal, seed): the same calls at the same turns give the same events, to the last digit."""

import random

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigRefused, RequestRefused
from engine.executor.pseudo_text import PseudoTokenizer
from engine.sampling_params import SamplingParams
from tests.engine.shadow import ShadowExecutor, tiny_spec
from tests.engine.watched import SMALL

CHANGES = [{"max_batch_tokens": 7}, {"max_requests_per_batch": 2}, {"scheduler_type": "static"}, {"scheduler_type": "prefill_first"},
           {"num_blocks": 22}, {"allow_block_sharing": False}, {"block_size": 8}, {"chunked_prefill": False}]
MODES = [{}, {"use_cuda_graph": True}, {"use_cuda_graph": True, "use_async_batching": True}]


def new_engine(mode, spec):
    tokenizer = PseudoTokenizer()
    return Engine(ShadowExecutor(tiny_spec(**spec), tokenizer=tokenizer), EngineConfig(**{**SMALL, "cpu_offload_space": 0.001, **mode}),
                  tokenizer=tokenizer)


def advance(engine, events):
    event = engine.step()
    events += [*engine.take_events(), *([event] if event else [])]
    return event


def play(engine, seed):
    """A session of random calls; returns all events."""
    choose, events = random.Random(seed), engine.take_events()
    for _ in range(60):
        kind = choose.random()
        try:
            if kind < 0.4:
                prompt = [choose.randint(5, 40) for _ in range(choose.randint(1, 14))]
                engine.submit(prompt, SamplingParams(max_new_tokens=choose.randint(1, 20), n=choose.choice([1, 1, 2]),
                                                     stop=("ka",) if choose.random() < 0.3 else ()), prompt_text="a prompt")
            elif kind < 0.5 and engine.scheduler.requests:
                engine.cancel(choose.choice(sorted(engine.scheduler.requests)))
            elif kind < 0.55:
                engine.configure(choose.choice(CHANGES))
        except (RequestRefused, ConfigRefused):
            pass
        events += engine.take_events()
        for _ in range(choose.randint(0, 5)):
            advance(engine, events)
    while engine.has_work:
        advance(engine, events)
    return events


def obey(engine, entry):
    if entry["op"] == "submit":
        engine.submit(entry["tokens"], SamplingParams.from_dict(entry["params"]), prompt_text=entry["prompt_text"], visitor=entry["visitor"],
                      request_id=entry["request_id"], seed_index=entry["seed_index"])
    elif entry["op"] == "cancel":
        engine.cancel(entry["id"])
    elif entry["op"] == "configure":
        engine.configure(entry["changes"])


def replay(engine, journal):
    events = engine.take_events()
    for entry in journal:
        while engine.turns < entry["turn"]:
            advance(engine, events)
        obey(engine, entry)
        events += engine.take_events()
    while engine.has_work:
        advance(engine, events)
    return events


@pytest.mark.parametrize("spec", [{}, {"window": 10}], ids=["full", "sliding"])
@pytest.mark.parametrize("mode", MODES, ids=["plain", "graphs", "async"])
@pytest.mark.parametrize("seed", range(4))
def test_a_journal_run_again_gives_the_same_events(seed, mode, spec):
    first = new_engine(mode, spec)
    events = play(first, seed)
    again = new_engine(mode, spec)
    assert replay(again, first.journal) == events
    assert again.snapshot() == first.snapshot()


def test_two_seeds_of_a_room_give_two_runs():
    outputs = []
    for seed in (0, 1):
        engine = new_engine({"seed": seed}, {})
        engine.submit([5, 6, 7], SamplingParams(max_new_tokens=8))
        while engine.has_work:
            engine.step()
        outputs.append(engine.requests["r1"].text)
    assert outputs[0] != outputs[1]
