"""Runs a lesson's scenario on the engine, exactly as a room of the server does, and measures it.

A run is one :class:`engine.rooms.Room`: the same workload driver, the same journal, the same events. Simulated devices need
no weights; a run on the model loads it once for all.
"""

from __future__ import annotations

import gc
import json
import time
from dataclasses import dataclass, field
from typing import Any

from engine.config import EngineConfig
from engine.limits import Limits
from engine.provider import Provider
from engine.rooms import Room
from engine.state import apply_event
from lessons.format import Lesson
from lessons.measure import Measure
from lessons.scenario import live_form

#: real seconds after which a run is given up: a lesson that needs longer is broken
MAX_SECONDS = 120.0


class RunFailed(RuntimeError):
    """The engine could not do what the scenario asks; the message says why."""


@dataclass(slots=True)
class Run:
    """One measured run: the snapshot it began with, its events, and its metrics."""

    name: str
    snapshot: dict[str, Any]
    metrics: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)


class Runner:
    """Runs scenarios. ``provider`` hands out executors; with its model not loaded only simulated runs work."""

    def __init__(self, provider: Provider | None = None) -> None:
        self.provider = provider or Provider(None)

    def need_model(self) -> None:
        """Load the model unless it is there. Raises :class:`engine.errors.ModelUnavailable`."""
        if self.provider.loaded is None:
            self.provider.load(lambda sentence: None)

    def run_all(self, lesson: Lesson) -> dict[str, Run]:
        """Every run of the lesson by name."""
        return {name: self.run(lesson, name) for name in lesson.runs}

    def run(self, lesson: Lesson, name: str, changes: dict[str, Any] | None = None) -> Run:
        """One run, with ``changes`` laid over its config. Raises :class:`RunFailed` when the engine fails or refuses a request."""
        form = live_form(lesson, name)
        config = EngineConfig.from_dict({**form["config"], **(changes or {})})
        return self.run_form(name, form, config, lesson.scenario.get("limits", {}))

    def run_form(self, name: str, form: dict[str, Any], config: EngineConfig, limits: dict[str, float]) -> Run:
        """As :meth:`run`, from the form the browser would send."""
        if form["device"] == "model":
            self.need_model()
        messages: list[str] = []
        room = Room(name.replace("_", "-"), publish=lambda _room, text: messages.append(text), limits=Limits(), device=form["device"],
                    model=form["model"])
        try:
            room.open(lambda chosen: self._engine(room, chosen), config)
            room.start_workload(form["workload"], None)
            script = list(form["script"])
            self._drive(room, script, form["max_steps"])
            if room.failed or room.failures:
                raise RunFailed(f"The run {name} failed: {room.engine.snapshot()['engine'].get('message', 'no reason was given')}")
        finally:
            room.close()
        return _measured(name, messages, limits)

    def _engine(self, room: Room, config: EngineConfig) -> Any:
        from engine.engine import Engine
        executor, tokenizer = self.provider.executor(room.device, room.model)
        return Engine(executor, config, tokenizer=tokenizer, room=room.name)

    def _drive(self, room: Room, script: list[dict[str, Any]], max_steps: int) -> None:
        # Collecting garbage in the middle of a step would show in the step times of a lesson that measures them.
        gc.collect()
        gc.disable()
        give_up = time.monotonic() + MAX_SECONDS
        try:
            while room.engine.step_index < max_steps:
                while script and script[0]["at"] <= room.engine.step_index:
                    _obey(room, script.pop(0))
                room.turn(time.monotonic())
                if room.failures:
                    break
                if room.traffic is None and not script and (room.blocked or not room.engine.has_work):
                    break
                if time.monotonic() > give_up:
                    raise RunFailed(f"The run did not end within {MAX_SECONDS:.0f} seconds; it stands at step {room.engine.step_index}.")
        finally:
            gc.enable()


def _obey(room: Room, entry: dict[str, Any]) -> None:
    """One entry of a script. A cancelled request is named by its place in the order of arrival, from 1."""
    if "configure" in entry:
        room.configure(entry["configure"])
    else:
        ordinal = entry["cancel"]
        for request in list(room.engine.requests.values()):
            if request.ordinal == ordinal:
                room.cancel(request.id)


def _measured(name: str, messages: list[str], limits: dict[str, float]) -> Run:
    decoded = [json.loads(text) for text in messages]
    start = max(index for index, message in enumerate(decoded) if message["type"] == "snapshot")
    snapshot, events = decoded[start], decoded[start + 1:]
    state = json.loads(json.dumps(snapshot["state"]))
    measure = Measure(limits)
    for event in events:
        apply_event(state, event)
        measure.take(event, state)
    return Run(name, snapshot, measure.record(), events)
