"""The engine of one room: ``submit → schedule → launch → collect → commit``, and an event for everything that happened."""

from __future__ import annotations

from collections import deque
from typing import Any

from engine.cache.paged_cache import PagedCache
from engine.cache.sizing import Sizing
from engine.config import EngineConfig
from engine.errors import IntegrityError, RequestRefused
from engine.executor.base import Executor, StepResult
from engine.model.detokenize import TextStream
from engine.plan import StepPlan
from engine.reconfiguration import build_cache, reconfigure
from engine.recorder import Recorder
from engine.request import Request, RequestState
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.reasons import Reason
from engine.snapshot import state_document
from engine.state import VERSION
from engine.step_event import record_step
from engine.submission import check_fits, check_prompt, make_requests

#: Ended requests that stay visible; older ones are retired from the state.
ENDED_KEPT = 64


class Engine:
    """One room's continuous-batching engine. Not thread-safe: every call comes from the thread that owns it.

    ``step()`` does one turn and returns its event; ``take_events()`` returns those of calls between steps. ``record=False``
    builds no events (to measure their cost).

    Raises :class:`ConfigRefused` when the cache of ``config`` cannot be made.
    """

    cache: PagedCache
    scheduler: Scheduler
    sizing: Sizing
    sizing_notes: list[str]
    schedule_interval: tuple[float, float]

    def __init__(self, executor: Executor, config: EngineConfig, *, tokenizer: Any = None, room: str = "main",
                 record: bool = True) -> None:
        self.executor = executor
        self.tokenizer = tokenizer
        self.config = config
        self.recorder = Recorder(room, enabled=record)
        self.requests: dict[str, Request] = {}       # everyone visible, ended ones included
        self.ended: deque[str] = deque()
        self.step_index = 0
        self.journal: list[dict[str, Any]] = []      # what was asked of this engine, by turn: enough to run it again
        self.turns = 0
        self._next_ordinal = 1
        self._streams: dict[str, TextStream] = {}
        self._in_flight: tuple[StepPlan, Any] | None = None
        self.carried = StepPlan(0)                  # copies of a plan that had no slices to ride on
        self._events: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}
        build_cache(self, config)
        info, spec = executor.info, executor.spec.to_dict()
        del spec["layer_types"]
        self.set_status(status="ready", message="", model=executor.spec.name, device=info.device, dtype=info.dtype,
                        backend=info.backend, executor=info.kind, simulated=info.simulated,
                        pace=0.0, spec=spec, machine=executor.machine)

    # -- requests ---------------------------------------------------------------------------------------------------

    def submit(self, tokens: list[int], params: SamplingParams | None = None, *, prompt_text: str = "",
               visitor: str | None = None, request_id: str | None = None, seed_index: int = 0,
               arrival: float | None = None) -> list[str]:
        """Queue a prompt of token ids; returns the ids of its ``params.n`` requests.

        ``arrival`` is when it came, on the room's clock, if that was before this call: during a step nobody can submit, and the
        wait for its end belongs to the TTFT.

        Raises :class:`RequestRefused` for an empty or malformed prompt, one that can never fit, or an id in use; nothing
        is queued then.
        """
        params = params or SamplingParams()
        check_prompt(tokens, self.executor.spec)
        check_fits(len(tokens), params, self.cache.layout, self.config, self.executor.spec)
        now = self.now()
        made = make_requests(tokens, params, first_ordinal=self._next_ordinal, config=self.config,
                             arrival=now if arrival is None else min(arrival, now), arrival_step=self.step_index,
                             prompt_text=prompt_text, visitor=visitor, request_id=request_id, seed_index=seed_index)
        taken = next((request.id for request in made if request.id in self.requests), None)
        if taken is not None:
            raise RequestRefused("duplicate_id", f"A request named {taken[:60]!r} is already here; choose another id, or none.")
        self._next_ordinal += len(made)
        moment = {} if arrival is None else {"arrival": arrival}
        self.note("submit", tokens=list(tokens), params=params.to_dict(), prompt_text=prompt_text, visitor=visitor,
                  request_id=request_id, seed_index=seed_index, **moment)
        for request in made:
            self.requests[request.id] = request
            self.scheduler.add(request)
            self.recorder.request(request)
            if self.tokenizer is not None:
                self._streams[request.id] = TextStream(self.tokenizer, params.stop, context=tokens[-32:])
            if params.max_new_tokens == 0:
                self._end(request, RequestState.FINISHED, "length", "length", now)
        self.flush("submit", now)
        return [request.id for request in made]

    def cancel(self, request_id: str) -> bool:
        """End a request early, wherever it is; its blocks are free at once. False when it is unknown or already over."""
        request = self.scheduler.requests.get(request_id)
        if request is None or request.ended:
            return False
        self.note("cancel", id=request_id)
        now = self.now()
        self._end(request, RequestState.CANCELLED, "cancelled", "cancelled", now)
        self.flush("cancel", now)
        return True

    def cancel_all(self) -> list[str]:
        """Cancel everything, queued requests included; returns the ids."""
        names = list(self.scheduler.requests)
        return [name for name in names if self.cancel(name)]

    # -- one turn ---------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return self._in_flight is not None or self.scheduler.has_work

    def now(self) -> float:
        """Seconds on the room's clock."""
        return self.executor.clock.now()

    def step(self) -> dict[str, Any] | None:
        """Launch the next step and collect the oldest launched one; returns the event, or ``None`` when idle.

        With async batching, step N+1 is launched before step N is collected, so tokens are one step behind
        (``results_of``). Starved requests, and samplers that need the newest token, make the engine collect first.
        """
        if not self.has_work:
            return None
        self.turns += 1
        waiting_step, launched = self._in_flight, None
        if waiting_step is None or not self.scheduler.starved:
            launched = self._launch(can_preempt=waiting_step is None)
        self._in_flight = launched
        collected: tuple[StepPlan, StepResult] | None = None
        if waiting_step is not None:
            collected = self._collect(waiting_step)
        elif launched is not None and not self._may_run_ahead():
            collected = self._collect(launched)
            self._in_flight = None
        now = self.now()
        if collected is not None:
            self._commit(*collected, now)
        if launched is not None or collected is not None:
            record_step(self, launched[0] if launched else None, collected[1] if collected else None)
            return self._emit("step", now)
        return self._emit("engine", now) if self.recorder.has_content else None

    def _launch(self, can_preempt: bool) -> tuple[StepPlan, Any] | None:
        started = self.now()
        plan, self.carried = self.carried, StepPlan(0)
        plan.step = self.step_index + 1
        self.scheduler.schedule(plan, can_preempt)
        if not plan.slices:
            # Blocks that these copies free or fill are untouched until the next plan, where the copies come first.
            self.carried = plan
            return None
        self.step_index += 1
        self.schedule_interval = (started, self.now())
        return plan, self.executor.launch(plan)

    def _may_run_ahead(self) -> bool:
        return (self.config.use_async_batching and self.executor.max_in_flight > 1
                and not any(request.params.needs_history for request in self.scheduler.active.values()))

    def _collect(self, step: tuple[StepPlan, Any]) -> tuple[StepPlan, StepResult]:
        plan, handle = step
        return plan, self.executor.collect(handle)

    def drain(self) -> None:
        """Collect what is in flight, so that no launched step refers to the cache any more."""
        if self._in_flight is not None:
            step, self._in_flight = self._in_flight, None
            collected = self._collect(step)
            now = self.now()
            self._commit(*collected, now)
            record_step(self, None, collected[1])
            self.flush("step", now)

    # -- commit -----------------------------------------------------------------------------------------------------

    def _commit(self, plan: StepPlan, result: StepResult, now: float) -> None:
        """Give every sampled token to its request, complete blocks to the prefix cache, and end who is done."""
        sampled = iter(zip(result.tokens, result.logprobs))
        appended = 0
        for request, _, _, _, samples in plan.slices:
            if samples:
                token, logprobs = next(sampled)
                request.in_flight -= 1
                if not request.ended:       # cancelled, or stopped one token earlier while this step was in flight
                    self._append(request, token, logprobs, now)
                    appended += 1
            if not request.ended:
                self.cache.register_complete_blocks(request)
        self.recorder.count("output_tokens", appended)
        self._release_finished_static_batch(now)

    def _append(self, request: Request, token: int, logprobs: Any, now: float) -> None:
        request.tokens.append(token)
        request.token_times.append(now)
        if request.first_token is None:
            request.first_token = now
        may_end = request.num_output_tokens >= request.params.min_new_tokens
        at_eos = may_end and token in self.executor.spec.eos_token_ids and not request.params.ignore_eos
        stream = self._streams.get(request.id)
        text, stopped = ("", False) if stream is None or at_eos else stream.push(token, may_stop=may_end)
        full = request.num_output_tokens >= request.params.max_new_tokens
        if stream is not None and (at_eos or (full and not stopped)):
            text += stream.flush()
        request.text += text
        self.recorder.token(request, token, text, logprobs)
        if at_eos or stopped or full:
            self.cache.register_complete_blocks(request)
            reason = "stop" if at_eos or stopped else "length"
            self._end(request, RequestState.FINISHED, reason, reason, now)

    def _end(self, request: Request, state: RequestState, cause: str, reason: str, now: float) -> None:
        """The one way out for every request: a single terminal transition, and everything it holds given back."""
        request.finished = now
        request.finish_reason = reason
        request.offloaded = False
        self._streams.pop(request.id, None)
        self.recorder.count(state.value)
        if state is RequestState.FINISHED and self.config.scheduler_type == "static" and request.id in self.scheduler.active:
            # Its blocks stay too: the padding rows that follow still read them.
            request.holds_slot = True
            self.recorder.transition(request, state, cause, now, reason=reason, holds_slot=True)
            return
        self.recorder.transition(request, state, cause, now, reason=reason)
        self.scheduler.forget(request)
        self.cache.release(request)
        self._retire(request)
        if state is not RequestState.FINISHED:
            self._release_finished_static_batch(now)        # it may have been the one that the others waited for

    def _release_finished_static_batch(self, now: float) -> None:
        """Held slots with nobody left to wait for are given back; otherwise they would hold for ever."""
        if self.scheduler.active and all(request.holds_slot for request in self.scheduler.active.values()):
            self.release_static_batch(now)

    def release_static_batch(self, now: float) -> None:
        for request in [request for request in self.scheduler.active.values() if request.holds_slot]:
            request.holds_slot = False
            self.recorder.transition(request, request.state, "static_release", now)
            self.scheduler.forget(request)
            self.cache.release(request)
            self._retire(request)

    def _retire(self, request: Request) -> None:
        self.ended.append(request.id)
        while len(self.ended) > ENDED_KEPT:
            name = self.ended.popleft()
            del self.requests[name]
            self.recorder.retired(name)

    def fail(self, request: Request, reason: str) -> None:
        self._end(request, RequestState.FAILED, "failed", reason, self.now())

    # -- configuration ----------------------------------------------------------------------------------------------

    def configure(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Turn knobs. Live ones hold from the next step; the others rebuild the cache, and every request is queued again.

        Returns ``{"changed": [names], "rebuilt": bool}``. Raises :class:`ConfigRefused`, changing nothing, when a value is
        bad, when a request that is here could never finish under the new config, or when the device cannot hold the cache.
        """
        result = reconfigure(self, changes)
        if result["changed"]:
            self.flush("config", self.now())
        return result

    def reset(self) -> None:
        """Empty the queue and forget every cached prefix."""
        self.cancel_all()
        self.drain()
        self.note("reset")
        self.cache.forget_prefixes()
        self.flush("engine", self.now())

    def set_status(self, **fields: Any) -> None:
        """Merge ``fields`` into the room's status and announce them. A paused room's requests wait for that reason."""
        if fields.get("status") == "paused" and self.scheduler.pending:
            head = self.scheduler.pending[0]
            self.recorder.set_waiting({
                "refused": [{"id": head.id, "reason": Reason.ROOM_PAUSED.value, "need": 0, "have": 0, "limit": 0}],
                "behind": head.id, "behind_count": len(self.scheduler.pending) - 1})
        self.announce(**fields)
        self.flush("engine", self.now())

    def announce(self, **fields: Any) -> None:
        """Merge ``fields`` into the status; they travel with the next event."""
        self.status.update(fields)
        self.recorder.section("engine", {**self.recorder.pending_section("engine"), **fields})

    # -- events -----------------------------------------------------------------------------------------------------

    def _emit(self, kind: str, now: float) -> dict[str, Any] | None:
        return self.recorder.flush(kind, self.step_index, now)

    def flush(self, kind: str, now: float) -> None:
        event = self._emit(kind, now)
        if event is not None:
            self._events.append(event)

    def take_events(self) -> list[dict[str, Any]]:
        """Events of calls between steps, oldest first; each is returned once."""
        events, self._events = self._events, []
        return events

    def snapshot(self) -> dict[str, Any]:
        """A ``snapshot`` message: the state after the last event."""
        return {"v": VERSION, "type": "snapshot", "room": self.recorder.room, "seq": self.recorder.seq,
                "state": state_document(self)}

    def note(self, operation: str, **details: Any) -> None:
        self.journal.append({"turn": self.turns, "step": self.step_index, "op": operation, **details})

    # -- checks -----------------------------------------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Raises :class:`IntegrityError` when a block, a swap slot or a request is lost, or counted twice."""
        scheduler = self.scheduler
        listed = [request.id for request in scheduler.pending] + list(scheduler.active)
        if sorted(listed) != sorted(scheduler.requests):
            raise IntegrityError("a request is in no queue, or in two")
        self.cache.check_integrity(scheduler.requests.values())
        if not scheduler.requests and self.cache.num_free != self.cache.layout.num_blocks:
            raise IntegrityError("the engine is idle, but blocks are held")

    def close(self) -> None:
        self.executor.close()
