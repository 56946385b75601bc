"""Feeds the requests of a workload to an engine at their time, by the room's clock and steps."""

from __future__ import annotations

import heapq
import time
from typing import Any, NamedTuple

from engine.errors import RequestRefused
from engine.sampling_params import SamplingParams
from engine.workload.prompts import PromptWriter
from engine.workload.workload import PlannedRequest, Workload


class DueRequest(NamedTuple):
    """A request that is due. ``arrival`` is its moment on the room's clock, which may lie within the step that just ended."""

    tokens: list[int]
    params: SamplingParams
    text: str
    arrival: float


class Traffic:
    """The requests of a workload, handed out when they are due; who submits them is the caller's business.

    The first call of :meth:`arrivals` starts the workload's clock. A closed loop reacts to answers: whenever fewer of the
    workload's requests are alive than before, that many users think, and then send their next one.
    """

    def __init__(self, workload: Workload, vocab_size: int, tokenizer: Any = None, avoid: tuple[int, ...] = ()) -> None:
        self.workload = workload
        self.writer = PromptWriter(workload, vocab_size, tokenizer, avoid)
        plan = workload.plan()
        self.total = len(plan)
        self.handed_out = 0
        by_time = sorted((one for one in plan if one.at is not None), key=lambda one: one.at)
        by_step = sorted((one for one in plan if one.at_step is not None), key=lambda one: one.at_step)
        # Reversed, so that the next one is popped from the end.
        self._by_time, self._by_step = by_time[::-1], by_step[::-1]
        self._waiting = [one for one in plan if one.at is None and one.at_step is None][::-1]
        self._ready = [0.0] * int(workload.arrivals.get("users")) if self._waiting else []      # when each idle user sends
        self._busy = 0                                   # users who wait for an answer
        self.samples = workload.sampling(1).n
        self._start: tuple[float, int] | None = None

    @property
    def done(self) -> bool:
        """Everything has been handed out."""
        return self.handed_out == self.total

    def stop(self) -> None:
        """Hand out nothing any more."""
        self._by_time, self._by_step, self._waiting = [], [], []
        self.total = self.handed_out

    def next_time(self) -> float | None:
        """The moment on the room's clock of the next arrival that is known by time; ``None``: it depends on steps or answers,
        or there is none."""
        if self._start is None:
            return None
        moments = [self._by_time[-1].at] if self._by_time else []
        if self._waiting and self._ready:
            moments.append(self._ready[0])
        return self._start[0] + min(moments) if moments else None

    def arrivals(self, now: float, step: int, live: int) -> list[DueRequest]:
        """What arrives by ``now`` and by ``step``, in order of arrival.

        ``live`` is how many of this workload's requests (each of ``n`` samples is one) have been submitted and not ended.
        """
        if self._start is None:
            self._start = (now, step)
        start, steps = self._start[0], step - self._start[1]
        arrived: list[tuple[PlannedRequest, float]] = []
        while self._by_time and start + self._by_time[-1].at <= now:
            arrived.append((self._by_time[-1], start + self._by_time[-1].at))
            self._by_time.pop()
        # With nothing alive no step will ever come, so the next one by step is due whatever its step says.
        while self._by_step and (self._by_step[-1].at_step <= steps or not (live or arrived or self._by_time)):
            arrived.append((self._by_step.pop(), now))
        if self.workload.closed:
            busy = -(-live // self.samples)
            for _ in range(self._busy - busy):
                heapq.heappush(self._ready, now - start + self.workload.arrivals.get("think"))
            # Compared as next_time() adds it up, so that a clock moved to that moment finds the request due.
            while self._waiting and self._ready and start + self._ready[0] <= now:
                arrived.append((self._waiting.pop(), start + heapq.heappop(self._ready)))
            self._busy = busy + len(arrived)
        self.handed_out += len(arrived)
        return [self._written(*one) for one in arrived]

    def _written(self, planned: PlannedRequest, moment: float) -> DueRequest:
        tokens, text = self.writer.write(planned)
        return DueRequest(tokens, self.workload.sampling(planned.output_length), text, moment)


class WorkloadDriver:
    """Submits the requests of ``workload`` to ``engine``. One that the engine refuses is kept in ``refused`` with the
    sentence, and harms no other."""

    def __init__(self, workload: Workload, engine: Any, tokenizer: Any = None) -> None:
        spec = engine.executor.spec
        size = min(spec.vocab_size, len(tokenizer)) if tokenizer is not None else spec.vocab_size
        self.engine = engine
        self.traffic = Traffic(workload, size, tokenizer, spec.eos_token_ids)
        self.submitted = 0
        self.refused: list[str] = []
        self._live: set[str] = set()

    @property
    def done(self) -> bool:
        return self.traffic.done

    def due(self, now: float) -> list[str]:
        """Submit what is due and return the new ids."""
        requests = self.engine.requests
        # A request that the engine has retired from its bounded list has ended too.
        self._live = {one for one in self._live if one in requests and not requests[one].ended}
        new: list[str] = []
        for one in self.traffic.arrivals(now, self.engine.step_index, len(self._live)):
            try:
                ids = self.engine.submit(one.tokens, one.params, prompt_text=one.text, arrival=one.arrival)
            except RequestRefused as refusal:
                self.refused.append(str(refusal))
                continue
            new += ids
        self.submitted += len(new)
        self._live.update(new)
        return new

    def run(self, on_event: Any = None, max_steps: int | None = None) -> int:
        """Drive the engine until everything has ended or ``max_steps``; returns the steps taken. ``on_event`` gets every event
        in order. While nothing can run, a simulated clock moves on to the next arrival, and real time is waited for."""
        clock, steps = self.engine.executor.clock, 0
        while max_steps is None or steps < max_steps:
            self.due(clock.now())
            if not self.engine.has_work:
                moment = self.traffic.next_time()
                if self.done or moment is None:
                    break
                if self.engine.executor.info.simulated:
                    clock.advance_to(moment)
                else:
                    time.sleep(max(0.0, moment - clock.now()))
                continue
            event = self.engine.step()
            if on_event is not None:
                for between in self.engine.take_events():
                    on_event(between)
                if event is not None:
                    on_event(event)
            if event is None:
                break
            steps += 1
        return steps
