"""What the tests of the model side share: a tiny model loaded the way the engine wants it, and traffic to run through it."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GptOssConfig

from engine.config import EngineConfig
from engine.engine import Engine
from engine.executor.model import ModelExecutor
from engine.model.loading import LoadedModel
from engine.model.spec import spec_from_model
from engine.sampling_params import SamplingParams
from tests.tiny_models import VOCAB, tiny_model

#: Caps low enough to bend the scores of a random model.
OVERRIDES: dict[str, dict[str, Any]] = {"gemma2": {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 5.0}}


@cache
def loaded_tiny(kind: str, device: str = "cpu", dtype: torch.dtype = torch.float32, wide: bool = False) -> LoadedModel:
    """``wide``: with heads of 32, the least that fast kernels take."""
    overrides = dict(OVERRIDES.get(kind, {}))
    if wide:
        overrides |= {"hidden_size": 128} if kind == "gpt_neox" else {"head_dim": 32}
    model = tiny_model(kind, **overrides).to(device=device, dtype=dtype)
    name = f"tiny {kind}{' wide' if wide else ''} on {device} in {dtype}"
    return LoadedModel(model, None, spec_from_model(model, name), "made in the test")


def untouched(loaded: LoadedModel) -> Any:
    """A copy of the model with transformers' plainest attention (its SDPA form forgets to cap scores)."""
    if loaded.name not in _untouched:
        _untouched[loaded.name] = copy.deepcopy(loaded.model)
        _untouched[loaded.name].set_attn_implementation("eager")
    return _untouched[loaded.name]


def tiny_prompts(count: int, longest: int = 40, seed: int = 0) -> list[list[int]]:
    """Random token ids of mixed lengths, from one token to ``longest``, without the special ones."""
    generator = random.Random(seed)
    lengths = [1, longest] + [generator.randint(1, longest) for _ in range(count - 2)]
    return [[generator.randrange(3, VOCAB) for _ in range(length)] for length in lengths[:count]]


@cache
def loaded_gpt_oss() -> LoadedModel:
    """A tiny mixture of experts with attention sinks, every other layer sliding."""
    config = GptOssConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
                          num_key_value_heads=2, head_dim=16, sliding_window=8, num_local_experts=4, num_experts_per_tok=2,
                          layer_types=["sliding_attention", "full_attention"] * 2, initializer_range=0.2, pad_token_id=0,
                          bos_token_id=1, eos_token_id=2, max_position_embeddings=512,
                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                parameter.normal_(1.0, 1.0)        # large enough to take their share
    return LoadedModel(model, None, spec_from_model(model, "tiny gpt-oss"), "made in the test")


def make_engine(loaded: LoadedModel, **knobs: Any) -> Engine:
    return Engine(ModelExecutor(loaded), EngineConfig().replaced(knobs), tokenizer=loaded.tokenizer)


def finish(engine: Engine, limit: int = 5000) -> None:
    """Step until nothing is left to do; checks the engine's own invariants now and then, and at the end."""
    for turn in range(limit):
        if not engine.has_work:
            engine.check_integrity()
            return
        engine.step()
        if turn % 16 == 0:
            engine.check_integrity()
    raise AssertionError(f"the engine still has work after {limit} turns")


def outputs(engine: Engine, ids: list[str]) -> list[list[int]]:
    """Generated tokens of finished requests."""
    requests = [engine.requests[name] for name in ids]
    for request in requests:
        assert request.state.value == "finished", f"{request.id} is {request.state.value}: {request.finish_reason}"
    return [request.tokens[request.num_prompt_tokens:] for request in requests]


def run(engine: Engine, prompts: list[list[int]], params: SamplingParams | list[SamplingParams]) -> list[list[int]]:
    """Submit all prompts at once and return what each of them generated."""
    each = params if isinstance(params, list) else [params] * len(prompts)
    ids = [engine.submit(prompt, item)[0] for prompt, item in zip(prompts, each, strict=True)]
    finish(engine)
    return outputs(engine, ids)


def reference(loaded: LoadedModel, prompts: list[list[int]], max_new_tokens: int, **options: Any) -> list[list[int]]:
    """The same by transformers' ``generate``, one prompt at a time, greedy."""
    model = untouched(loaded)
    key = (loaded.name, max_new_tokens, str(sorted(options.items())))
    known = _references.setdefault(key, {})
    for prompt in prompts:
        if tuple(prompt) not in known:
            inputs = torch.tensor([prompt], device=loaded.model.device)
            with torch.inference_mode():
                out = model.generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=max_new_tokens,
                                            do_sample=False, pad_token_id=0, **options)
            known[tuple(prompt)] = out[0, len(prompt):].tolist()
    return [known[tuple(prompt)] for prompt in prompts]


_references: dict[Any, dict[tuple[int, ...], list[int]]] = {}
_untouched: dict[str, Any] = {}
