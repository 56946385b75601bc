"""A room: one engine with its own config, queue, cache, clock, pace and event log.

Everything here runs on the device thread (see :mod:`engine.room_manager`); nothing is locked because nothing is shared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from engine import protocol
from engine import state as states
from engine.config import EngineConfig
from engine.errors import BatchscopeError, CommandRefused
from engine.history import History
from engine.journal import Replay, journal_document
from engine.limits import Limits
from engine.resubmission import first_line, queue_again
from engine.room_traffic import RoomTraffic
from engine.sampling_params import SamplingParams

log = logging.getLogger("batchscope.rooms")

#: After a failed step everything unfinished is queued again; after more than this many without a good step the room stops.
MAX_FAILURES_IN_A_ROW = 2
#: Bytes of events a room keeps so that a client can resume after a short loss of connection.
RESUME_BYTES = 4 * 2**20


class Room:
    """One engine and everything about it that is not its business: pace, pause, who may, what was, who watches.

    ``make_engine(config)`` builds a fresh engine of this room (at the start, at a reset and after a failure).
    ``publish(room, text)`` is called with every message, in order. ``owner`` is the visitor whose room it is, ``None`` for main.
    """

    def __init__(
        self,
        name: str,
        *,
        publish: Callable[[Room, str], None],
        limits: Limits,
        title: str = "",
        owner: str | None = None,
        public: bool = False,
        device: str = "model",
        model: str | None = None,
    ) -> None:
        self.name, self.title, self.owner, self.public = name, title, owner, public
        self.device, self.model = device, model
        self.publish, self.limits = publish, limits
        self.engine: Any = None
        self.make_engine: Callable[[EngineConfig], Any] | None = None
        self.placeholder = states.empty_state()  # the state while there is no engine yet
        self.history = History(max_bytes=RESUME_BYTES, checkpoint_every=256)
        self.history.begin(0, "")
        self.first_config: dict[str, Any] = {}  # what the journal starts from
        self.journal_complete = True
        self.journal_tokens = 0
        self.pace = 0.0
        self.paused = False
        self.step_credit = 0  # steps to run although paused
        self.next_due = 0.0  # monotonic time before which no step starts
        self.blocked = False  # had work but could not run a step; a command may change that
        self.traffic: RoomTraffic | None = None
        self.watchers = 0
        self.last_used = 0.0  # monotonic time of the last command, step or watcher
        self.failures = 0
        self.failed = False
        self.visitor_of: dict[str, str | None] = {}  # unfinished requests, and who sent them
        self.replay: Replay | None = None
        self._after_replay: Callable[[Room], None] = lambda room: None

    # --- opening ------------------------------------------------------------------------------------------------------------

    def open(self, make_engine: Callable[[EngineConfig], Any], config: EngineConfig) -> None:
        """Build the engine. What has been announced so far is replaced by its first snapshot."""
        self.make_engine = make_engine
        self._adopt(make_engine(config))

    def _adopt(self, engine: Any) -> None:
        self.engine, self.blocked = engine, False
        self.first_config, self.journal_complete, self.journal_tokens = engine.config.to_dict(), True, 0
        self.visitor_of.clear()
        self._set_mode()
        engine.take_events()  # whatever led to the snapshot is in the snapshot
        # A new numbering: every watcher gets the snapshot, and nobody can resume across.
        self.history.begin(engine.recorder.seq, "")
        self.publish(self, protocol.encode(self.snapshot()))

    def snapshot(self) -> dict[str, Any]:
        """The snapshot message: the whole state, which replaces whatever a client had."""
        if self.engine is not None:
            return {**self.engine.snapshot(), "life": self.history.life}
        return {
            "v": protocol.VERSION,
            "type": "snapshot",
            "room": self.name,
            "seq": self.placeholder["seq"],
            "life": self.history.life,
            "state": self.placeholder,
        }

    def journal(self) -> dict[str, Any]:
        """All that is needed to run this room's history again. Raises :class:`CommandRefused` when the beginning was dropped."""
        engine = self.need_engine()
        if not self.journal_complete:
            raise CommandRefused(
                "journal_incomplete",
                "This room has had so many requests that its "
                "journal no longer reaches back to the beginning; reset the room to start a new one.",
            )
        return journal_document(engine.journal, self.first_config, self.device, self.model)

    # --- events -------------------------------------------------------------------------------------------------------------

    def announce(self, **fields: Any) -> None:
        """Say something about the engine itself (``status``, ``message``, ``pace``) in the stream."""
        if self.engine is not None:
            self.engine.set_status(**fields)
            self.flush()
            return
        event = {
            "v": protocol.VERSION,
            "type": "engine",
            "room": self.name,
            "seq": self.placeholder["seq"] + 1,
            "step": 0,
            "time": 0.0,
            "engine": fields,
        }
        states.apply_event(self.placeholder, event)
        self._emit(event)

    def _set_mode(self, **more: Any) -> None:
        """Tell the engine, and so the stream, what mode the room is in."""
        status = "failed" if self.failed else "paused" if self.paused else "ready"
        self.engine.set_status(status=status, pace=self.pace, **more)

    def flush(self) -> None:
        """Publish what happened between steps."""
        if self.engine is not None:
            for event in self.engine.take_events():
                self._emit(event)

    def _emit(self, event: dict[str, Any]) -> None:
        for record in event.get("requests", ()):
            self.visitor_of[record["id"]] = record["visitor"]
        for transition in event.get("transitions", ()):
            if transition["to"] in states.ENDED_STATES:
                self.visitor_of.pop(transition["id"], None)
        text = protocol.encode(event)
        self.history.append(event["seq"], text)
        if self.history.wants_checkpoint:
            self.history.checkpoint(event["seq"], "")  # no state here: the page process keeps those
        self.publish(self, text)

    # --- stepping -----------------------------------------------------------------------------------------------------------

    def due_at(self, now: float) -> float | None:
        """When the room wants its next turn (monotonic seconds, maybe in the past); None: not before a command."""
        if self.engine is None or self.failed:
            return None
        if self.replay is not None:
            return now
        if self.paused and not self.step_credit:
            return None
        if self.engine.has_work and not self.blocked:
            return self.next_due
        if self.traffic is not None:
            return max(self.next_due, now + self.traffic.wait(self.engine))
        return None

    def turn(self, now: float) -> None:
        """Run one step if there is anything to do. Never raises: an engine that fails is reported, not propagated."""
        try:
            if self.replay is not None:
                self.replay.obey_due(self.engine)
            elif self.traffic is not None:
                self._arrivals(self.traffic)
            event = self.engine.step()
        except Exception as problem:  # whatever it is, the other rooms go on
            self._step_failed(problem)
            return
        self.flush()
        if event is not None:
            self.failures = 0
            self.last_used = now
            self._emit(event)
        self.blocked = event is None
        if self.replay is not None:
            if self.replay.done(self.engine) or (self.blocked and not self.replay.entries):
                self._replay_done()
            return
        self.step_credit = max(0, self.step_credit - (event is not None))
        rate = self.pace or (self.limits.max_simulated_pace if self.engine.executor.info.simulated else 0.0)
        if rate:
            # From the planned time, so that a late turn does not slow the average; but no burst to catch up a whole turn.
            planned = self.next_due if now - self.next_due < 1.0 / rate else now
            self.next_due = planned + 1.0 / rate
        self._bound_journal()

    def _arrivals(self, traffic: RoomTraffic) -> None:
        refusal = traffic.send_due(self)
        if refusal is not None:
            self.announce(message=f"A request of the workload was refused: {refusal}")
        if traffic.done:
            self.traffic = None

    def _bound_journal(self) -> None:
        full = self.journal_tokens > self.limits.max_journal_tokens
        if full or len(self.engine.journal) > self.limits.max_journal_entries:
            self.engine.journal.clear()
            self.journal_complete, self.journal_tokens = False, 0

    # --- when a step fails ------------------------------------------------------------------------------------------------------

    def _step_failed(self, problem: Exception) -> None:
        """Build the engine anew and queue everything unfinished again; stop when that fails too."""
        log.error("room %s: a step failed", self.name, exc_info=problem)
        self.replay, self.traffic = None, None
        self.failures += 1
        self.failed = self.failures > MAX_FAILURES_IN_A_ROW
        sentence = f"A step failed ({type(problem).__name__}: {first_line(problem)})"
        unfinished = [request for request in self.engine.requests.values() if not request.ended]
        try:
            self._replace_engine()
        except Exception as second:
            log.error("room %s: the engine could not be built again", self.name, exc_info=second)
            self.failed = True
            self.announce(
                status="failed", message=f"{sentence}, and the engine could not be built again; reset the room to try once more."
            )
            return
        if self.failed:
            self.announce(
                status="failed",
                message=f"{sentence}, for the {self.failures}rd time in a row; {len(unfinished)} unfinished "
                "requests were given up. Reset the room to go on.",
            )
            return
        again = sum(queue_again(self, request) for request in unfinished)
        lost = len(unfinished) - again
        self.announce(
            message=f"{sentence}; the engine was built anew and {again} requests were queued again"
            + (f", {lost} were lost." if lost else ".")
        )

    def _replace_engine(self) -> None:
        """A fresh engine with the config in force. The old executor goes first, because memory may not hold two."""
        config = self.engine.config
        self.engine.close()
        self._adopt(self.make_engine(config))

    # --- commands -----------------------------------------------------------------------------------------------------------

    def need_engine(self) -> Any:
        """The engine. Raises :class:`CommandRefused` while there is none, or none that works."""
        if self.engine is None:
            why = self.placeholder["engine"].get("message") or "it is being loaded."
            raise CommandRefused("model_loading", f"The model is not ready: {why}")
        if self.failed:
            raise CommandRefused("room_failed", "This room's engine has failed; reset the room first.")
        return self.engine

    def submit(self, tokens: list[int], params: SamplingParams, **details: Any) -> list[str]:
        """Queue a request (``params.n`` siblings); ``details`` are those of ``Engine.submit``.

        Raises :class:`RequestRefused` when it can never run.
        """
        ids = self.need_engine().submit(tokens, params, **details)
        self.journal_tokens += len(tokens)
        self._bound_journal()
        if self.paused and not self.step_credit:
            self._set_mode()  # says that the newcomer waits because of the pause
        self.blocked = False
        self.flush()
        return ids

    def cancel(self, request_id: str) -> bool:
        """Cancel one request; False when it has already ended."""
        cancelled = self.need_engine().cancel(request_id)
        self.blocked = False
        self.flush()
        return cancelled

    def configure(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Turn knobs. Raises :class:`ConfigRefused`; the old config then stays in force."""
        result = self.need_engine().configure(changes)
        self.blocked = False
        self.flush()
        return result

    def pause(self) -> None:
        self.need_engine()
        self.paused, self.step_credit = True, 0
        self._set_mode()
        self.flush()

    def resume(self) -> None:
        self.need_engine()
        self.paused, self.step_credit, self.next_due, self.blocked = False, 0, 0.0, False
        self._set_mode()
        self.flush()

    def step(self, count: int) -> None:
        """Run ``count`` steps, then stand still."""
        self.need_engine()
        self.step_credit = count + (self.step_credit if self.paused else 0)
        self.next_due, self.blocked = 0.0, False
        if not self.paused:
            self.paused = True
            self._set_mode()
        self.flush()

    def set_pace(self, steps_per_second: float) -> None:
        self.pace, self.next_due = float(steps_per_second), 0.0
        if self.engine is not None:
            self._set_mode()
            self.flush()

    def reset(self) -> None:
        """Begin again: every request is cancelled, then queue, cache, counters and numbering start from nothing. Also the way
        out of a failed room."""
        if self.engine is None:
            self.need_engine()
        self.traffic, self.replay = None, None
        if not self.failed:
            self.engine.cancel_all()
            self.flush()
        self.failed, self.failures, self.step_credit = False, 0, 0
        try:
            self._replace_engine()
        except Exception as problem:
            self.failed = True
            self.announce(status="failed", message=f"The engine could not be built again: {first_line(problem)}")
            raise

    def start_workload(self, values: dict[str, Any], owner: str | None) -> dict[str, Any]:
        """Let a generated workload send its requests. Raises :class:`CommandRefused` for one that cannot be used."""
        self.traffic = RoomTraffic(self.need_engine(), values, owner)
        self.blocked = False
        return {"requests": self.traffic.total}

    def stop_workload(self) -> dict[str, Any]:
        """Hand out nothing more; what has been submitted runs on."""
        sent = self.traffic.handed_out if self.traffic is not None else 0
        self.traffic = None
        return {"requests": sent}

    def start_replay(self, replay: Replay, then: Callable[[Room], None]) -> None:
        """Run a journal again as fast as turns come, then call ``then``."""
        self.replay, self._after_replay = replay, then
        self.announce(message="Running the recorded requests again …")

    def _replay_done(self) -> None:
        self.replay = None
        try:
            self._after_replay(self)
        except BatchscopeError as problem:
            self.announce(message=problem.message)

    # --- facts ----------------------------------------------------------------------------------------------------------------

    def live_requests_of(self, visitor: str | None) -> list[str]:
        return [request for request, who in self.visitor_of.items() if who == visitor]

    def cache_bytes(self) -> int:
        """Bytes of this room's KV cache and swap space on a real device; a simulated one takes none."""
        if self.engine is None or self.engine.executor.info.simulated:
            return 0
        layout = self.engine.cache.layout
        return (layout.num_blocks + 2 + layout.num_swap_slots) * layout.block_bytes

    def describe(self, visitor: str | None = None, host: bool = False) -> dict[str, Any]:
        """What a list of rooms shows; never who owns it."""
        simulated = bool(self.engine is not None and self.engine.executor.info.simulated)
        return {
            "room": self.name,
            "title": self.title,
            "yours": host or (visitor is not None and visitor == self.owner),
            "public": self.public,
            "device": self.device,
            "model": self.model,
            "simulated": simulated,
            "watchers": self.watchers,
            "live": len(self.visitor_of),
            "paused": self.paused,
            "pace": self.pace,
            "ready": self.engine is not None and not self.failed,
        }

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
            self.engine = None
