"""What the tests of the model side share: a tiny model loaded the way the engine wants it, and traffic to run through it."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import torch

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
    key = (loaded.name, max_new_tokens, str(sorted(options.items())))
    known = _references.setdefault(key, {})
    for prompt in prompts:
        if tuple(prompt) not in known:
            inputs = torch.tensor([prompt], device=loaded.model.device)
            with torch.inference_mode():
                out = untouched(loaded).generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=max_new_tokens,
                                            do_sample=False, pad_token_id=0, **options)
            known[tuple(prompt)] = out[0, len(prompt):].tolist()
    return [known[tuple(prompt)] for prompt in prompts]


_references: dict[Any, dict[tuple[int, ...], list[int]]] = {}
_untouched: dict[str, Any] = {}
