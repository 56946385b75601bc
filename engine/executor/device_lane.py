"""Where the work of launched steps happens: in the caller's thread, in a worker thread, or on CUDA streams.

A lane runs jobs one at a time and in order. ``start`` may return before the job is done; ``finish`` waits for it.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from engine.executor.base import Clock


@dataclass(slots=True)
class Job:
    """``upload`` brings the inputs over, ``compute`` does the work on the device, ``to_host`` brings its result back.
    After :meth:`Lane.finish`, ``result`` is that result and ``device`` the interval of the work on the room's clock."""

    upload: Callable[[], None]
    compute: Callable[[], Any]
    to_host: Callable[[Any], Any]
    result: Any = None
    device: tuple[float, float] = (0.0, 0.0)
    error: BaseException | None = None
    done: threading.Event | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Lane(ABC):
    @abstractmethod
    def start(self, job: Job) -> None: ...

    @abstractmethod
    def finish(self, job: Job) -> None:
        """Wait, fill in ``result`` and ``device``, raise what the job raised."""


class InlineLane(Lane):
    """The job is done when ``start`` returns."""

    def __init__(self, clock: Clock, model: Any) -> None:
        self._clock = clock
        self._worker = Worker.of(model)

    def start(self, job: Job) -> None:
        run_on_cpu(job, self._clock, self._worker.turn)

    def finish(self, job: Job) -> None:
        if job.error is not None:
            raise job.error


class ThreadLane(Lane):
    """Jobs run in the worker thread of their model, so the caller can prepare the next step meanwhile."""

    def __init__(self, clock: Clock, model: Any) -> None:
        self._clock = clock
        self._worker = Worker.of(model)

    def start(self, job: Job) -> None:
        job.done = threading.Event()
        self._worker.put(lambda: run_on_cpu(job, self._clock, self._worker.turn), job.done)

    def finish(self, job: Job) -> None:
        job.done.wait()
        if job.error is not None:
            raise job.error


def run_on_cpu(job: Job, clock: Clock, turn: threading.Lock) -> None:
    """Run a job in this thread. What it raises is kept for whoever collects it, as on an asynchronous device."""
    with turn:
        begin = clock.now()
        try:
            job.upload()
            job.result = job.to_host(job.compute())
        except Exception as error:
            job.error = error
        job.device = (begin, clock.now())


class Worker:
    """What the rooms of one model share on a CPU: a lock, so that forward passes take turns (two at once would only take
    cores from each other), and a thread for those that run ahead, started when the first one does."""

    _of_model: WeakKeyDictionary = WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, model: Any) -> Worker:
        with cls._lock:
            worker = cls._of_model.get(model)
            if worker is None:
                worker = cls._of_model[model] = cls()
            return worker

    def put(self, run: Callable[[], None], done: threading.Event) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._jobs,), name="forward", daemon=True)
            self._thread.start()
        self._jobs.put((run, done))

    def __del__(self) -> None:
        self._jobs.put(None)


def _work(jobs: queue.SimpleQueue) -> None:
    while (item := jobs.get()) is not None:
        run, done = item
        run()
        done.set()


class CudaLane(Lane):
    """Two streams: inputs of the next step go over on one while the other computes. Nothing waits for the host."""

    def __init__(self, clock: Clock, device: torch.device) -> None:
        self._clock = clock
        self._device = device
        self._transfer = torch.cuda.Stream(device)
        self._compute = torch.cuda.Stream(device)
        self._compute.wait_stream(torch.cuda.current_stream(device))
        self._origin = torch.cuda.Event(enable_timing=True)
        self._origin.record(self._compute)
        self._origin.synchronize()
        self._origin_time = clock.now()

    def start(self, job: Job) -> None:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.device(self._device):
            with torch.cuda.stream(self._transfer):
                job.upload()
                arrived = self._transfer.record_event()
            with torch.cuda.stream(self._compute):
                self._compute.wait_event(arrived)
                begin.record(self._compute)
                job.result = job.to_host(job.compute())
                end.record(self._compute)
        job.extra.update(begin=begin, end=end)

    def finish(self, job: Job) -> None:
        begin, end = job.extra["begin"], job.extra["end"]
        end.synchronize()
        job.device = (self._on_clock(begin), self._on_clock(end))

    def _on_clock(self, event: torch.cuda.Event) -> float:
        return self._origin_time + self._origin.elapsed_time(event) / 1e3
