"""How one request wants its tokens chosen, checked at the door."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from engine.errors import RequestRefused

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 200

#: bounds of the numeric parameters, inclusive
BOUNDS = {
    "max_new_tokens": (0, 1_000_000), "temperature": (0.0, 10.0), "top_k": (0, 1_000_000), "top_p": (0.001, 1.0),
    "min_p": (0.0, 1.0), "repetition_penalty": (0.1, 10.0), "seed": (0, 2**63 - 1), "logprobs": (0, 20), "n": (1, 64),
    "min_new_tokens": (0, 1_000_000),
}
WHOLE = {"max_new_tokens", "min_new_tokens", "top_k", "seed", "logprobs", "n"}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling of one request. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and
    ``repetition_penalty`` 1 switch their filter off; ``seed`` ``None`` lets the engine derive one from the request's id.

    ``logprobs`` asks for the log-probabilities of that many most likely tokens at each position (0 to 20), and ``n``
    for that many samples of one prompt, forked copy-on-write from its cache. Before ``min_new_tokens`` neither the model's end token
    nor a stop text ends the output.

    Raises :class:`RequestRefused` on construction for a wrong type or a value out of bounds.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = field(default=())
    ignore_eos: bool = False
    logprobs: int = 0
    n: int = 1
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if name == "seed" and value is None:
                continue
            whole = name in WHOLE
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
                raise RequestRefused("param_type", f"{name} must be {'a whole number' if whole else 'a number'}, not {str(value)[:60]!r}.")
            if not low <= value <= high:
                raise RequestRefused("param_bounds", f"{name} must lie between {low:g} and {high:g}, not {value:g}.")
        if self.min_new_tokens > self.max_new_tokens:
            raise RequestRefused("param_bounds", f"min_new_tokens ({self.min_new_tokens}) must not be more than max_new_tokens ({self.max_new_tokens}).")
        if not isinstance(self.ignore_eos, bool):
            raise RequestRefused("param_type", "ignore_eos must be true or false.")
        stops = self.stop
        if (not isinstance(stops, tuple) or len(stops) > MAX_STOP_STRINGS
                or any(not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_LENGTH for text in stops)):
            raise RequestRefused("param_stop", f"stop must be a list of at most {MAX_STOP_STRINGS} non-empty texts of up to {MAX_STOP_LENGTH} characters.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def needs_history(self) -> bool:
        """Whether choosing the next token needs the earlier ones on the host, which rules out launching a step ahead."""
        return self.repetition_penalty != 1.0

    def to_dict(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["stop"] = list(self.stop)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SamplingParams:
        """From JSON values. Raises :class:`RequestRefused` for an unknown name; nothing is silently ignored."""
        if not isinstance(values, dict):
            raise RequestRefused("param_type", "Sampling parameters must be an object of names and values.")
        known = {item.name for item in fields(cls)}
        for name in values:
            if name not in known:
                raise RequestRefused("unknown_param", f"There is no sampling parameter named {str(name)[:60]!r}; they are {', '.join(sorted(known))}.")
        values = dict(values)
        if isinstance(values.get("stop"), list):
            values["stop"] = tuple(values["stop"])
        elif isinstance(values.get("stop"), str):
            values["stop"] = (values["stop"],)
        return cls(**values)
