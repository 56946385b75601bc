"""Every message of a run that uses every mechanism is what the schema says, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.executor.catalog import find_model, parse_device
from engine.executor.pseudo_text import PseudoTokenizer
from engine.executor.simulated import SimulatedExecutor
from engine.sampling_params import SamplingParams
from engine.schema import first_problem, validator


def make_engine(**config: Any) -> Engine:
    tokenizer = PseudoTokenizer()
    hardware, count = parse_device("h100")
    executor = SimulatedExecutor(hardware, find_model("llama-8b"), count, tokenizer=tokenizer)
    values = {"block_size": 4, "num_blocks": 24, "max_batch_tokens": 16, "max_requests_per_batch": 6, **config}
    return Engine(executor, EngineConfig.from_dict(values), tokenizer=tokenizer)


def mixed_run() -> list[dict[str, Any]]:
    """Snapshots and events of offload, soft reset, restore, prefix hits, forks, graphs, async, static, cancel and rebuilds."""
    engine = make_engine(cpu_offload_space=0.01)
    engine.take_events()
    messages = [engine.snapshot()]

    def run(steps: int = 10_000) -> None:
        for _ in range(steps):
            event = engine.step()
            messages.extend(engine.take_events())
            if event is None:
                break
            messages.append(event)

    def send(length: int, new: int, **params: Any) -> list[str]:
        return engine.submit(
            list(range(1, length + 1)),
            SamplingParams(max_new_tokens=new, ignore_eos=True, **params),
            prompt_text="text",
            visitor="v1",
        )

    for _ in range(6):
        send(18, 30)
    run(40)
    engine.configure({"cpu_offload_space": 0.0})
    for _ in range(4):
        send(18, 40)
    run(60)
    send(9, 6, n=3)
    engine.cancel(send(9, 20)[0])
    messages.append(engine.snapshot())
    run()
    engine.configure({"use_cuda_graph": True, "use_async_batching": True})
    for _ in range(4):
        send(17, 8)
    run()
    engine.configure({"scheduler_type": "static", "use_async_batching": False})
    send(5, 3), send(5, 9), send(5, 0)
    run()
    engine.set_status(status="paused", pace=8.0)
    engine.reset()
    messages.extend(engine.take_events())
    messages.append(engine.snapshot())
    return messages


@pytest.fixture(scope="module")
def messages() -> list[dict[str, Any]]:
    return mixed_run()


def test_every_message_of_a_mixed_run_is_valid(messages):
    for message in messages:
        assert first_problem(message) is None, (first_problem(message), message["type"], message["seq"])


def test_the_mixed_run_reaches_every_section_and_cause(messages):
    sections = set().union(*messages)
    causes = {transition["cause"] for message in messages for transition in message.get("transitions", ())}
    operations = {operation[0] for message in messages for operation in message.get("blocks", ())}
    schema = validator().schema["$defs"]
    assert set(schema["event"]["properties"]) - sections <= {"life", "retired"}
    assert set(schema["transition"]["properties"]["cause"]["enum"]) - causes <= {"stop", "failed"}
    assert operations >= {"alloc", "share", "copy", "free", "hash", "demote", "swap_out", "swap_in", "forget"}


def test_an_unknown_field_anywhere_is_refused(messages):
    """Strict in every section: a field that the schema does not name is an error wherever it stands."""
    checked = 0
    for message in [one for one in messages if one["type"] == "snapshot" and one["state"]["active"]][:1] + [
        one for one in messages if "transitions" in one and "budget" in one
    ][:1]:
        for place in _objects(message):
            changed = copy.deepcopy(message)
            target = changed
            for part in place:
                target = target[part]
            if place[-1:] in (["spec"], ["requests"], ["hashes"]):
                continue  # maps, and the model's numbers
            target["surprise"] = {"nested": 1}
            assert first_problem(changed) is not None, place
            checked += 1
    assert checked > 20


def _objects(value: Any, place: tuple = ()) -> list[list[Any]]:
    found = [list(place)] if isinstance(value, dict) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _objects(item, (*place, key))
    return found


@pytest.mark.parametrize(
    "damage",
    [
        lambda event: event.update(seq=-1),
        lambda event: event.update(v=2),
        lambda event: event.update(type="snap"),
        lambda event: event["transitions"][0].update(cause="vanished"),
        lambda event: event["slices"].append(["r1", 0, 0, "decode", True]),
        lambda event: event["blocks"].append(["steal", "r1"]),
        lambda event: event["counters"].update(steps=-3),
        lambda event: event.pop("room"),
        lambda event: event.update(changed=["block_size"]),
    ],
)
def test_a_damaged_event_is_refused(messages, damage):
    event = copy.deepcopy(next(one for one in messages if {"transitions", "slices", "blocks", "counters"} <= set(one)))
    assert first_problem(event) is None
    damage(event)
    assert first_problem(event) is not None


def test_a_run_of_the_real_model_is_valid_too(default_model):
    from engine.executor.model import ModelExecutor

    config = {"block_size": 16, "num_blocks": 32, "max_batch_tokens": 32, "use_cuda_graph": True}
    engine = Engine(ModelExecutor(default_model), EngineConfig.from_dict(config), tokenizer=default_model.tokenizer)
    engine.take_events()
    messages = [engine.snapshot()]
    engine.submit(default_model.tokenizer("The sky is blue because")["input_ids"], SamplingParams(max_new_tokens=4, logprobs=2, n=2))
    while engine.has_work:
        event = engine.step()
        messages += [*engine.take_events(), *([event] if event else [])]
    engine.configure({"max_batch_tokens": 16})
    messages += [*engine.take_events(), engine.snapshot()]
    engine.close()
    for message in messages:
        assert first_problem(message) is None, (first_problem(message), message["type"])
    assert any("logprob" in token for message in messages for token in message.get("tokens", ()))
