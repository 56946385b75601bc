"""A workload: who asks what, when, and for how long an answer. Checked data from which every request follows by a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from engine.errors import RequestRefused
from engine.sampling_params import SamplingParams
from engine.workload.arrivals import Arrivals
from engine.workload.checks import number, refuse
from engine.workload.lengths import MAX_LENGTH, Lengths

MAX_REQUESTS = 20_000
MAX_TOTAL_TOKENS = 200_000_000
MAX_NAME = 80
MAX_PROMPT_CHARACTERS = 200_000

#: ``auto``: sentences where the engine has a tokenizer, random token ids otherwise; ``tokens``: always ids;
#: ``questions``: short questions as they stand, whatever length they have.
CONTENTS = ("auto", "tokens", "questions")
FIELDS = ("name", "seed", "num_requests", "arrivals", "prompt_length", "output_length", "shared_prefix", "content", "params",
          "items", "speed", "source")
ITEM_FIELDS = ("at", "at_step", "prompt", "output")


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request to come. ``at`` is seconds after the start, ``at_step`` a number of engine steps after the start, and
    both ``None`` mean that the closed loop decides. ``prompt_length`` counts the shared prefix too."""

    index: int
    at: float | None
    at_step: int | None
    prompt_length: int
    output_length: int
    prefix_group: int = 0
    prompt: str | None = None


@dataclass(frozen=True)
class Workload:
    """Use :meth:`from_dict`; the fields are those of the JSON form.

    ``shared_prefix`` is ``(tokens, groups)``: every prompt starts with the system prompt of one of the groups. ``items``,
    when there are any, replace the generators; each has a time (``at`` or ``at_step``), a prompt (text, or a number of
    tokens) and an output length. ``speed`` above 1 makes all arrivals that much denser. ``params`` are sampling parameters
    for every request; outputs have their full length (``ignore_eos``) unless they say otherwise.
    """

    name: str = "workload"
    seed: int = 0
    num_requests: int = 32
    arrivals: Arrivals = Arrivals("at_once", ())
    prompt_length: Lengths = Lengths("fixed", (("value", 64),))
    output_length: Lengths = Lengths("fixed", (("value", 32),))
    shared_prefix: tuple[int, int] = (0, 1)
    content: str = "auto"
    params: dict[str, Any] = field(default_factory=dict)
    items: tuple[PlannedRequest, ...] = ()
    speed: float = 1.0
    source: str = "generated"

    @classmethod
    def from_dict(cls, values: Any) -> Workload:
        """From JSON values. Raises :class:`CommandRefused` with a sentence for anything that cannot be used."""
        if not isinstance(values, dict):
            raise refuse("A workload must be an object of names and values.")
        for name in values:
            if name not in FIELDS:
                raise refuse(f"A workload has no field {str(name)[:60]!r}; it has {', '.join(FIELDS)}.")
        made: dict[str, Any] = {}
        for name in ("name", "source"):
            if name in values:
                if not isinstance(values[name], str) or not 0 < len(values[name]) <= MAX_NAME:
                    raise refuse(f"{name} must be a text of 1 to {MAX_NAME} characters.")
                made[name] = values[name]
        if "seed" in values:
            made["seed"] = number(values["seed"], "seed", 0, 2**31 - 1, True)
        if "speed" in values:
            made["speed"] = float(number(values["speed"], "speed", 1e-3, 1e3))
        if "num_requests" in values:
            made["num_requests"] = number(values["num_requests"], "num_requests", 1, MAX_REQUESTS, True)
        if "arrivals" in values:
            made["arrivals"] = Arrivals.from_value(values["arrivals"])
        for name in ("prompt_length", "output_length"):
            if name in values:
                made[name] = Lengths.from_value(values[name], name)
        if "shared_prefix" in values:
            made["shared_prefix"] = _shared_prefix(values["shared_prefix"])
        if "content" in values:
            if values["content"] not in CONTENTS:
                raise refuse(f"content must be one of {', '.join(CONTENTS)}.")
            made["content"] = values["content"]
        if "params" in values:
            made["params"] = _params(values["params"])
        if "items" in values:
            made["items"] = _items(values["items"])
            made["num_requests"] = len(made["items"])
        return cls(**made)

    def to_dict(self) -> dict[str, Any]:
        """Inverse of :meth:`from_dict`, JSON-ready."""
        values: dict[str, Any] = {"name": self.name, "seed": self.seed, "content": self.content, "params": dict(self.params),
                                  "speed": self.speed, "source": self.source}
        if self.items:
            values["items"] = [
                {**({"at": item.at} if item.at_step is None else {"at_step": item.at_step}),
                 "prompt": item.prompt_length if item.prompt is None else item.prompt, "output": item.output_length}
                for item in self.items]
            return values
        return {**values, "num_requests": self.num_requests, "arrivals": self.arrivals.to_dict(),
                "prompt_length": self.prompt_length.to_dict(), "output_length": self.output_length.to_dict(),
                "shared_prefix": {"tokens": self.shared_prefix[0], "groups": self.shared_prefix[1]}}

    @property
    def closed(self) -> bool:
        return self.arrivals.closed and not self.items

    def sampling(self, output_length: int) -> SamplingParams:
        """The parameters of one request."""
        return SamplingParams.from_dict({"ignore_eos": self.content != "questions", **self.params, "max_new_tokens": output_length})

    def plan(self) -> list[PlannedRequest]:
        """Every request in order of arrival: a function of the workload alone. Raises :class:`CommandRefused` when they
        add up to more than ``MAX_TOTAL_TOKENS``."""
        if self.items:
            return [PlannedRequest(item.index, None if item.at is None else item.at / self.speed, item.at_step,
                                   item.prompt_length, item.output_length, 0, item.prompt) for item in self.items]
        # One generator for each property, so that changing one of them leaves the others as they were.
        arrival_random, prompt_random, output_random, group_random = (
            Random(f"{self.seed}:{purpose}") for purpose in ("arrivals", "prompts", "outputs", "groups"))
        prefix, groups = self.shared_prefix
        planned, total = [], 0
        for index, moment in enumerate(self.arrivals.times(self.num_requests, arrival_random)):
            length = prefix + self.prompt_length.draw(prompt_random)
            output = self.output_length.draw(output_random)
            total += length + output
            if total > MAX_TOTAL_TOKENS:
                raise refuse(f"The workload adds up to more than {MAX_TOTAL_TOKENS:,} tokens; make it shorter.")
            planned.append(PlannedRequest(index, None if moment is None else moment / self.speed, None, length, output,
                                          group_random.randrange(groups)))
        return planned


def _shared_prefix(value: Any) -> tuple[int, int]:
    if not isinstance(value, dict) or not set(value) <= {"tokens", "groups"}:
        raise refuse("shared_prefix must be an object with tokens and groups.")
    return (int(number(value.get("tokens", 0), "shared_prefix.tokens", 0, MAX_LENGTH, True)),
            int(number(value.get("groups", 1), "shared_prefix.groups", 1, 1000, True)))


def _params(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and "max_new_tokens" in value:
        raise refuse("params must not set max_new_tokens; the output lengths of the workload do.")
    try:
        SamplingParams.from_dict(value)
    except RequestRefused as error:
        raise refuse(f"params: {error}") from None
    return dict(value)


def _items(value: Any) -> tuple[PlannedRequest, ...]:
    if not isinstance(value, list) or not value:
        raise refuse("items must be a list with at least one request.")
    if len(value) > MAX_REQUESTS:
        raise refuse(f"A workload may have at most {MAX_REQUESTS:,} requests, not {len(value):,}.")
    items = []
    for index, item in enumerate(value):
        where = f"items[{index}]"
        if not isinstance(item, dict) or not set(item) <= set(ITEM_FIELDS):
            raise refuse(f"{where} must be an object with {', '.join(ITEM_FIELDS)}.")
        if ("at" in item) and ("at_step" in item):
            raise refuse(f"{where} must have at or at_step, not both.")
        step = number(item["at_step"], f"{where}.at_step", 0, 10**7, True) if "at_step" in item else None
        moment = None if step is not None else float(number(item.get("at", 0.0), f"{where}.at", 0, 10**7))
        prompt = item.get("prompt", 64)
        if isinstance(prompt, str):
            if not 0 < len(prompt) <= MAX_PROMPT_CHARACTERS:
                raise refuse(f"{where}.prompt must have 1 to {MAX_PROMPT_CHARACTERS:,} characters.")
            length = 0
        else:
            length, prompt = int(number(prompt, f"{where}.prompt", 1, MAX_LENGTH, True)), None
        output = int(number(item.get("output", 32), f"{where}.output", 0, MAX_LENGTH, True))
        items.append(PlannedRequest(index, moment, step, length, output, 0, prompt))
    return tuple(items)
