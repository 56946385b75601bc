"""An engine under constant watch: after every call the reducer's state is compared with the snapshot and every invariant is checked."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

from engine.config import EngineConfig
from engine.engine import Engine
from engine.sampling_params import SamplingParams
from engine.state import ENDED_STATES, apply_event, empty_state
from tests.engine.shadow import ShadowExecutor, tiny_spec

#: A small room: every limit is a few requests away.
SMALL = {"block_size": 4, "num_blocks": 16, "max_batch_tokens": 16, "max_requests_per_batch": 4, "safety_margin": 0.0}


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two JSON documents differ, as readable lines."""
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for key in sorted(set(left) | set(right), key=str):
            if key not in left or key not in right:
                found.append(f"{path}/{key} is only in the {'reduced state' if key in left else 'snapshot'}")
            else:
                found += differences(left[key], right[key], f"{path}/{key}")
        return found
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [line for index, pair in enumerate(zip(left, right)) for line in differences(*pair, f"{path}[{index}]")]
    return [] if left == right and type(left) is type(right) else [f"{path}: reduced {left!r}, snapshot {right!r}"]


class Watched:
    """``Watched(num_blocks=…)`` makes an engine on the shadow device; its calls are those of :class:`Engine`.

    Raises ``AssertionError`` in the call after which something is wrong.
    """

    def __init__(self, spec=None, stop_after=None, tokenizer=None, **config: Any) -> None:
        self.executor = ShadowExecutor(spec or tiny_spec(), stop_after=stop_after)
        self.engine = Engine(self.executor, EngineConfig(**{**SMALL, **config}), tokenizer=tokenizer)
        self.state = empty_state()
        self.events: list[dict[str, Any]] = []
        self.terminal: Counter[str] = Counter()
        self.everyone: dict[str, Any] = {}          # also those that the engine has retired
        self.steps = 0
        self.check()

    def submit(self, prompt: list[int] | int, new_tokens: int = 4, **params: Any) -> list[str]:
        """``prompt`` as tokens, or a length for a prompt that no other request shares."""
        if isinstance(prompt, int):
            start = 10 + 37 * len(self.everyone)
            prompt = [(start + 11 * place) % 900 + 10 for place in range(prompt)]
        ids = self.engine.submit(prompt, SamplingParams(max_new_tokens=new_tokens, **params))
        self.everyone.update((name, self.engine.requests[name]) for name in ids if name in self.engine.requests)
        self.check()
        return ids

    def cancel(self, name: str) -> bool:
        done = self.engine.cancel(name)
        self.check()
        return done

    def cancel_all(self) -> list[str]:
        names = self.engine.cancel_all()
        self.check()
        return names

    def configure(self, **changes: Any) -> dict[str, Any]:
        try:
            return self.engine.configure(changes)
        finally:
            self.check()

    def reset(self) -> None:
        self.engine.reset()
        self.check()

    def step(self, count: int = 1) -> dict[str, Any] | None:
        """``count`` turns; the last event."""
        event = None
        for _ in range(count):
            event = self.engine.step()
            self.steps += event is not None
            self.check(event)
        return event

    def run(self, max_steps: int = 5000) -> int:
        """Until nothing is left to do; the turns taken."""
        before = self.steps
        while self.engine.has_work:
            assert self.steps - before < max_steps, f"no end in sight: {self.engine.recorder.waiting}"
            self.step()
        return self.steps - before

    def request(self, name: str) -> Any:
        return self.everyone[name]

    def outputs(self, name: str) -> list[int]:
        request = self.everyone[name]
        return request.tokens[request.num_prompt_tokens:]

    @property
    def counters(self) -> dict[str, int]:
        return self.engine.recorder.counters

    def transitions(self, name: str) -> list[str]:
        """Causes in order."""
        return [one["cause"] for event in self.events for one in event.get("transitions", ()) if one["id"] == name]

    # -- checks ------------------------------------------------------------------------------------------------------

    def check(self, event: dict[str, Any] | None = None) -> None:
        for one in [*self.engine.take_events(), *([event] if event else [])]:
            json.dumps(one, allow_nan=False)
            # The reducer keeps parts of the event, so it gets its own copy, as a client does.
            apply_event(self.state, copy.deepcopy(one))
            self.events.append(one)
            self._check_event(one)
        snapshot = self.engine.snapshot()["state"]
        if self.state != snapshot:
            raise AssertionError("the reduced state differs: " + "; ".join(differences(self.state, snapshot)[:8]))
        self.engine.check_integrity()
        if not self.engine.has_work:
            assert self.engine.cache.num_free == self.engine.cache.layout.num_blocks, "idle, but blocks are held"

    def _check_event(self, event: dict[str, Any]) -> None:
        budget = event.get("budget")
        if budget is not None:
            assert all(0 <= used <= limit for used, limit in (budget["tokens"], budget["kv"])), f"over budget: {budget}"
            assert sum(count for _, _, count, _, _ in event["slices"]) == budget["tokens"][0]
            assert all(count > 0 for _, _, count, _, _ in event["slices"]), "an empty slice"
            names = [name for name, *_ in event["slices"]]
            assert len(set(names)) == len(names), "a request is in one batch twice"
        for one in event.get("transitions", ()):
            if one["to"] in ENDED_STATES and one["cause"] != "static_release":
                self.terminal[one["id"]] += 1
                assert self.terminal[one["id"]] == 1, f"{one['id']} ended twice"

    def check_everyone_ended_well(self) -> None:
        """Everybody has one terminal event, the tokens that were due, and times that do not run backwards."""
        for name, request in self.everyone.items():
            assert request.ended and self.terminal[name] == 1, f"{name} was lost"
            assert self.outputs(name) == [self.executor.token_at(request, request.num_prompt_tokens + place)
                                          for place in range(request.num_output_tokens)], f"{name} has wrong tokens"
            if request.finish_reason == "length":
                assert request.num_output_tokens == request.params.max_new_tokens
            moments = [request.arrival, *([request.admitted] if request.admitted is not None else []), *request.token_times, request.finished]
            assert moments == sorted(moments), f"the times of {name} run backwards: {moments}"
