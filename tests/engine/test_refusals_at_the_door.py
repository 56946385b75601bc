"""Configurations and sampling parameters that cannot work are refused with one sentence, and nothing changes."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig, describe_knobs
from engine.errors import BatchscopeError, ConfigRefused, RequestRefused
from engine.sampling_params import SamplingParams

BAD_CONFIGS = [
    {"max_batch_tokens": 0}, {"max_batch_tokens": 1.5}, {"max_batch_tokens": True}, {"max_batch_tokens": "many"},
    {"max_batch_tokens": None}, {"block_size": 3}, {"num_blocks": 0}, {"max_memory_percent": 1.5},
    {"scheduler_type": "lifo"}, {"chunked_prefill": 1}, {"safety_margin": float("nan")}, {"colour": "red"},
    {"use_async_batching": True}, {"seed": -1}, {"cpu_offload_space": float("inf")},
]

BAD_PARAMS = [
    {"max_new_tokens": -1}, {"max_new_tokens": 2.5}, {"max_new_tokens": True}, {"temperature": -0.1},
    {"temperature": float("nan")}, {"top_p": 0}, {"min_p": 2}, {"repetition_penalty": 0}, {"seed": "x"}, {"n": 0}, {"n": 65},
    {"stop": [""]}, {"stop": [1]}, {"stop": ["a"] * 17}, {"stop": 3}, {"logprobs": 21}, {"ignore_eos": "no"}, {"beam": 4},
]


def is_one_sentence(text: str) -> bool:
    return text[0].isupper() or (text.split(maxsplit=1)[0] in {*SamplingParams.__slots__, *EngineConfig.__slots__} and text.endswith("."))


@pytest.mark.parametrize("changes", BAD_CONFIGS, ids=str)
def test_a_config_that_cannot_work_is_refused_by_a_sentence(changes):
    with pytest.raises(ConfigRefused) as refusal:
        EngineConfig().replaced(changes)
    assert is_one_sentence(refusal.value.message)
    assert next(iter(changes)) in refusal.value.message


@pytest.mark.parametrize("values", BAD_PARAMS, ids=str)
def test_sampling_parameters_that_cannot_work_are_refused_by_a_sentence(values):
    with pytest.raises(RequestRefused) as refusal:
        SamplingParams.from_dict(values)
    assert is_one_sentence(refusal.value.message)
    assert next(iter(values)) in refusal.value.message


def test_every_error_for_people_has_a_stable_code():
    with pytest.raises(BatchscopeError) as refusal:
        EngineConfig().replaced({"block_size": 3})
    assert refusal.value.code == "config_bounds"


def test_config_survives_the_journey_through_json():
    config = EngineConfig(block_size=16, num_blocks=96, safety_margin=0.2)
    assert EngineConfig.from_dict(config.to_dict()) == config


def test_every_knob_says_what_it_does_and_where_it_belongs():
    for knob in describe_knobs():
        assert knob["help"].endswith(".") and knob["group"] in {"scheduling", "cache", "graphs", "model"}
        assert knob["default"] is not None or knob["auto"]


def test_the_scheduler_sets_the_margin_unless_told_otherwise():
    assert EngineConfig().effective_safety_margin == 0.15
    assert EngineConfig(scheduler_type="prefill_first").effective_safety_margin == 0.0
    assert EngineConfig(safety_margin=0.0).effective_safety_margin == 0.0
