"""Keeps what is needed to queue interrupted requests again when the engine process dies: their tokens so far.

The state document holds text, not token ids; the events hold both. So the ids are collected here while a request lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.state import ENDED_STATES


@dataclass(slots=True)
class Interrupted:
    """One unfinished request. ``tokens`` is the prompt and every token generated so far; ``None`` when some were missed."""

    id: str
    tokens: list[int] | None
    text: str
    params: dict[str, Any]
    seed: int | None
    visitor: str | None
    outputs: int = 0

    def submission(self) -> dict[str, Any]:
        """The fields of a `submit` that goes on where this request stopped."""
        left = {name: max(0, self.params.get(name, 0) - self.outputs) for name in ("max_new_tokens", "min_new_tokens")}
        params = {**self.params, "n": 1, **left}
        if self.seed is not None:
            params["seed"] = self.seed
        return (
            {"prompt_tokens": self.tokens, "params": params}
            if self.tokens is not None
            else {"prompt": self.text, "params": params}
        )


class Unfinished:
    """The unfinished requests of one room, by id, in order of arrival."""

    def __init__(self) -> None:
        self.requests: dict[str, Interrupted] = {}

    def note(self, message: dict[str, Any]) -> None:
        """Follow the stream."""
        if message["type"] == "snapshot":
            self._start_from(message["state"])
            return
        for record in message.get("requests", ()):
            self.requests[record["id"]] = Interrupted(
                record["id"], list(record["prompt_tokens"]), record["prompt"], record["params"], record["seed"], record["visitor"]
            )
        for token in message.get("tokens", ()):
            request = self.requests.get(token["id"])
            if request is not None:
                request.outputs += 1
                request.text += token["text"]
                if request.tokens is not None:
                    request.tokens.append(token["token"])
        for transition in message.get("transitions", ()):
            if transition["to"] in ENDED_STATES:
                self.requests.pop(transition["id"], None)

    def _start_from(self, state: dict[str, Any]) -> None:
        """A snapshot has no token ids. What is already known and still of the same length is kept."""
        known, self.requests = self.requests, {}
        for name, request in sorted(state["requests"].items(), key=lambda entry: entry[1]["ordinal"]):
            if request["state"] in ENDED_STATES:
                continue
            before = known.get(name)
            if (
                before is not None
                and before.outputs == request["outputs"]
                and before.params == request["params"]
                and before.tokens is not None
                and len(before.tokens) == request["prompt_len"] + request["outputs"]
            ):
                self.requests[name] = before
            else:
                self.requests[name] = Interrupted(
                    name,
                    None,
                    request["prompt"] + request["text"],
                    request["params"],
                    None,
                    request["visitor"],
                    request["outputs"],
                )
