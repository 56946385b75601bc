"""A running workload in a room: its requests are sent when they are due on the room's clock, or after so many steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import RequestRefused
from engine.workload.driver import Traffic
from engine.workload.workload import Workload

if TYPE_CHECKING:
    from engine.rooms import Room

#: Longest sleep while the next arrival is awaited (seconds).
NAP = 0.25


class RoomTraffic:
    """The requests of one workload, sent in the name of ``owner``. Raises :class:`CommandRefused` for one that cannot be used."""

    def __init__(self, engine: Any, values: dict[str, Any], owner: str | None) -> None:
        spec, tokenizer = engine.executor.spec, engine.tokenizer
        size = min(spec.vocab_size, len(tokenizer)) if tokenizer is not None else spec.vocab_size
        self._traffic = Traffic(Workload.from_dict(values), size, tokenizer, spec.eos_token_ids)
        self._owner = owner
        self._live: set[str] = set()

    @property
    def total(self) -> int:
        return self._traffic.total

    @property
    def handed_out(self) -> int:
        return self._traffic.handed_out

    @property
    def done(self) -> bool:
        return self._traffic.done

    def wait(self, engine: Any) -> float:
        """Seconds of real time until the next arrival. A simulated clock stands still while nothing runs, so there it is now."""
        moment = self._traffic.next_time()
        if moment is None or engine.executor.info.simulated:
            return 0.0
        return min(NAP, max(0.0, moment - engine.now()))

    def send_due(self, room: Room) -> str | None:
        """Submit what has arrived; returns why one of them was refused, if any was."""
        engine, refusal = room.engine, None
        moment = self._traffic.next_time()
        if moment is not None and not engine.has_work and engine.executor.info.simulated:
            engine.executor.clock.advance_to(moment)
        self._live.intersection_update(room.visitor_of)
        for one in self._traffic.arrivals(engine.now(), engine.step_index, len(self._live)):
            try:
                ids = room.submit(one.tokens, one.params, prompt_text=one.text, visitor=self._owner, arrival=one.arrival)
                self._live.update(ids)
            except RequestRefused as problem:
                refusal = problem.message
        return refusal
