"""Where the work of launched steps happens: in the caller's thread, in a worker thread, or on CUDA streams.

A lane runs jobs one at a time and in order. ``start`` may return before the job is done; ``finish`` waits for it.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch

from engine.executor.base import Clock


@dataclass(slots=True, weakref_slot=True)
class Job:
    """``upload`` brings the inputs over, ``compute`` does the work on the device, ``to_host`` brings its result back.
    After :meth:`Lane.finish`, ``result`` is that result and ``device`` the interval of the work on the room's clock."""

    upload: Callable[[], None]
    compute: Callable[[], Any]
    to_host: Callable[[Any], Any]
    result: Any = None
    device: tuple[float, float] = (0.0, 0.0)
    error: BaseException | None = None
    done: threading.Event | None = None                                    # set by the worker thread
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None        # CUDA: begin and end


class Lane(ABC):
    def preparing(self) -> AbstractContextManager[None]:
        """Around the preparation of a job's inputs."""
        return nullcontext()

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

    _of_model: ClassVar[WeakKeyDictionary] = WeakKeyDictionary()
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
        del item, run, done        # or the last job, and all it refers to, would live until the next one


class CudaLane(Lane):
    """Two streams: inputs of the next step go over on one while the other computes. Nothing waits for the host."""

    #: Seconds by which the device's timer may drift from the room's clock before it is set right.
    DRIFT = 1e-3

    def __init__(self, clock: Clock, device: torch.device) -> None:
        self._clock = clock
        self._device = device
        self._transfer = torch.cuda.Stream(device)
        self._compute = torch.cuda.Stream(device)
        self._anchor = torch.cuda.Event(enable_timing=True)
        self._anchor.record(self._compute)
        self._anchor.synchronize()
        self._anchor_time = clock.now()

    @contextmanager
    def preparing(self) -> Iterator[None]:
        # What preparation sends over must be in order with ``upload``, and so with the computation that waits for it.
        with torch.cuda.device(self._device), torch.cuda.stream(self._transfer):
            yield

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
        job.events = (begin, end)

    def finish(self, job: Job) -> None:
        begin, end = job.events
        running = not end.query()
        end.synchronize()
        now = self._clock.now()
        # Event times are 32-bit floats, so they are measured from the step before, not from the beginning of time.
        begin_time = self._anchor_time + self._anchor.elapsed_time(begin) / 1e3
        end_time = begin_time + begin.elapsed_time(end) / 1e3
        if end_time > now or (running and now - end_time > self.DRIFT):
            begin_time, end_time = begin_time + now - end_time, now
        self._anchor, self._anchor_time = end, end_time
        job.device = (begin_time, end_time)
