"""Collects what happens between two events, at the moment and in the branch where it happens.

The engine, the scheduler and the cache call it; nothing is reconstructed afterwards. The format is in ``ARCHITECTURE.md``.
"""

from __future__ import annotations

from typing import Any

from engine.plan import Slice
from engine.request import Request, RequestState
from engine.state import COUNTERS, VERSION, empty_last

TIME_DIGITS = 6


def rounded(seconds: float) -> float:
    """Times travel with microsecond precision; both the event and the snapshot round the same way."""
    return round(seconds, TIME_DIGITS)


class Recorder:
    """One room's event under construction, and the last values that a snapshot repeats.

    ``enabled=False`` keeps the counters but builds no events, to measure what observation costs.
    """

    def __init__(self, room: str, enabled: bool = True) -> None:
        self.room = room
        self.enabled = enabled
        self.seq = 0
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.waiting: dict[str, Any] = {"refused": [], "behind": None, "behind_count": 0}
        self.last: dict[str, Any] = empty_last()
        self.last_time = 0.0
        self._sections: dict[str, Any] = {}
        self._changed_counters: set[str] = set()

    # -- what happened ----------------------------------------------------------------------------------------------

    def _list(self, section: str) -> list[Any]:
        return self._sections.setdefault(section, [])

    def request(self, request: Request) -> None:
        if self.enabled:
            self._list("requests").append({
                "id": request.id, "ordinal": request.ordinal, "prompt": request.prompt_text,
                "prompt_tokens": request.tokens[:request.num_prompt_tokens], "params": request.params.to_dict(),
                "arrival": rounded(request.arrival), "arrival_step": request.arrival_step, "parent": request.parent,
                "visitor": request.visitor, "seed": request.seed,
            })

    def transition(self, request: Request, target: RequestState, cause: str, time: float, **details: Any) -> None:
        """Put ``request`` into ``target`` and say why."""
        if self.enabled:
            self._list("transitions").append({
                "id": request.id, "from": request.state.value, "to": target.value, "cause": cause,
                "time": rounded(time), **details})
        request.state = target

    def block_operation(self, operation: list[Any]) -> None:
        if self.enabled:
            self._list("blocks").append(operation)

    def prefix_hit(self, request_id: str, tokens: int, blocks: int) -> None:
        self.count("prefix_hit_tokens", tokens)
        if self.enabled:
            self._list("prefix_hits").append({"id": request_id, "tokens": tokens, "blocks": blocks})

    def token(self, request: Request, token: int, text: str,
              logprobs: tuple[float, list[tuple[int, float]]] | None) -> None:
        if self.enabled:
            record: dict[str, Any] = {"id": request.id, "token": token, "text": text}
            if logprobs is not None:
                record["logprob"] = round(logprobs[0], 4)
                record["top"] = [[other, round(value, 4)] for other, value in logprobs[1]]
            self._list("tokens").append(record)

    def slices(self, slices: list[Slice]) -> None:
        if self.enabled:
            self._sections["slices"] = [[piece.request.id, piece.start, piece.count, piece.kind, piece.samples]
                                        for piece in slices]

    def section(self, name: str, value: Any) -> None:
        if self.enabled:
            self._sections[name] = value

    def pending_section(self, name: str) -> dict[str, Any]:
        """What the event under construction already holds under ``name``."""
        return self._sections.get(name, {})

    def set_waiting(self, waiting: dict[str, Any]) -> None:
        """Who was refused in this step, by which branch; sent only when it differs from the last time."""
        if waiting != self.waiting:
            self.waiting = waiting
            self.section("waiting", waiting)

    def retired(self, request_id: str) -> None:
        if self.enabled:
            self._list("retired").append(request_id)

    def count(self, counter: str, amount: int = 1) -> None:
        if amount:
            self.counters[counter] += amount
            self._changed_counters.add(counter)

    # -- the event --------------------------------------------------------------------------------------------------

    @property
    def has_content(self) -> bool:
        return bool(self._sections or self._changed_counters)

    def flush(self, kind: str, step: int, time: float) -> dict[str, Any] | None:
        """The finished event, or ``None`` when recording is off. ``time`` is rounded; so must be the token times."""
        self.last_time = rounded(time)
        if not self.enabled:
            self._changed_counters.clear()
            return None
        self.seq += 1
        event = {"v": VERSION, "type": kind, "room": self.room, "seq": self.seq, "step": step, "time": self.last_time,
                 **self._sections}
        if self._changed_counters:
            event["counters"] = {name: self.counters[name] for name in COUNTERS if name in self._changed_counters}
        if kind == "step":
            self.last = {name: event.get(name, default) for name, default in empty_last().items()}
        self._sections = {}
        self._changed_counters = set()
        return event
