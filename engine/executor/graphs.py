"""The graph cache: steps of equal shape are recorded once and replayed.

What is recorded differs by device, the cache does not: on CUDA a CUDA graph of the forward pass; on a CPU, which has no
graphs, two pairs of static buffers that a step of the same shape fills again instead of making its own. Reports say which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable

import torch

from engine.executor.base import GraphReport
from engine.executor.batch_buffers import BatchBuffers, BatchShape
from engine.model.packed_batch import PackedBatch

#: Recorded shapes that are kept; the least recently used one goes first.
MAX_GRAPHS = 64

Run = Callable[[PackedBatch], torch.Tensor]


class RecordedStep(ABC):
    """The memory, and on CUDA the graph, of steps of one shape. ``buffers``: two pairs, used in turn, so that the next step
    may be prepared while one runs."""

    buffers: tuple[BatchBuffers, BatchBuffers]

    @abstractmethod
    def first_run(self, buffers: BatchBuffers, carried: torch.Tensor | None, run: Run) -> torch.Tensor:
        """Run the step that is being recorded and return its logits."""

    @abstractmethod
    def replay(self, buffers: BatchBuffers, carried: torch.Tensor | None, run: Run) -> torch.Tensor:
        """Run a further step of this shape."""


class CpuStep(RecordedStep):
    """Static buffers only: every operation of the forward pass still runs as always."""

    def __init__(self, shape: BatchShape, windows: tuple[int | None, ...], device: torch.device) -> None:
        self.buffers = (BatchBuffers(shape, windows, device), BatchBuffers(shape, windows, device))

    def first_run(self, buffers, carried, run):
        return self.replay(buffers, carried, run)

    def replay(self, buffers, carried, run):
        if carried is not None:
            buffers.take_carried(carried)
        return run(buffers.batch)


class CudaStep(RecordedStep):
    """A CUDA graph over a third set of index tensors, which never move; a step's own pair is copied into it first.

    So the two pairs can be filled and sent over while the graph runs, and one graph serves both.
    """

    def __init__(self, shape: BatchShape, windows: tuple[int | None, ...], device: torch.device, pool: tuple[int, int]) -> None:
        """``pool``: the memory pool that all graphs of a room work in; they never run at the same time."""
        self.buffers = (BatchBuffers(shape, windows, device), BatchBuffers(shape, windows, device))
        self._static = BatchBuffers(shape, windows, device)
        self._device = device
        self._pool = pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: torch.Tensor | None = None

    def first_run(self, buffers, carried, run):
        self._load(buffers, carried)
        # The warm-up run is the step itself; recording after it launches nothing, and a replay would only repeat it.
        logits = run(self._static.batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=torch.cuda.current_stream(self._device),
                              capture_error_mode="thread_local"):
            self._logits = run(self._static.batch)
        self._graph = graph
        return logits

    def replay(self, buffers, carried, run):
        self._load(buffers, carried)
        self._graph.replay()
        return self._logits

    def _load(self, buffers: BatchBuffers, carried: torch.Tensor | None) -> None:
        self._static.copy_from(buffers)
        if carried is not None:
            self._static.take_carried(carried)


class GraphCache:
    """Recorded steps by shape, least recently used first out.

    ``make`` builds the memory for a new shape; ``backend`` is what reports call it. When recording fails the cache gives up
    for good and says why: the same model would fail again at every shape.
    """

    def __init__(self, backend: str, make: Callable[[BatchShape], RecordedStep], capacity: int = MAX_GRAPHS) -> None:
        self.backend = backend
        self._make = make
        self._capacity = capacity
        self._steps: OrderedDict[BatchShape, RecordedStep] = OrderedDict()
        self._recorded: set[BatchShape] = set()
        self.broken = ""

    def __len__(self) -> int:
        return len(self._steps)

    def find(self, shape: BatchShape) -> RecordedStep:
        """The memory for ``shape``, made when it is new."""
        step = self._steps.get(shape)
        if step is None:
            while len(self._steps) >= self._capacity:
                old, _ = self._steps.popitem(last=False)
                self._recorded.discard(old)
            step = self._steps[shape] = self._make(shape)
        self._steps.move_to_end(shape)
        return step

    def report(self, shape: BatchShape, query_padding: int, kv_padding: int) -> GraphReport:
        """What will happen to a step of this shape: the first is a capture, the others are replays."""
        if self.broken:
            return GraphReport("eager", self.backend, describe(shape), query_padding, kv_padding, self.broken)
        action = "replay" if shape in self._recorded else "capture"
        self._recorded.add(shape)
        return GraphReport(action, self.backend, describe(shape), query_padding, kv_padding)

    def run(
        self, step: RecordedStep, buffers: BatchBuffers, carried: torch.Tensor | None, report: GraphReport, run: Run
    ) -> torch.Tensor:
        """Run a step the way its report says. A recording that fails turns the report into ``eager``."""
        if report.action == "replay":
            return step.replay(buffers, carried, run)
        if report.action == "capture":
            try:
                return step.first_run(buffers, carried, run)
            except RuntimeError as error:
                if self.backend != "cuda":
                    raise
                self.broken = f"the device could not record this model's step ({str(error).splitlines()[0][:120]})"
                report.action, report.why = "eager", self.broken
        if carried is not None:
            buffers.take_carried(carried)
        return run(buffers.batch)

    def clear(self) -> None:
        """Forget everything recorded (the cache tensors it points to are gone)."""
        self._steps.clear()
        self._recorded.clear()


def describe(shape: BatchShape) -> str:
    """The key in words: ``q64 kv1024``, and with prefill rows their number, longest and sampled rows."""
    text = f"q{shape.num_tokens} kv{max(group.max_kv for group in shape.groups)}"
    if shape.num_prefill:
        text += f" p{shape.num_prefill}×{shape.max_query} s{shape.num_samples}"
    gathered = max(group.num_keys for group in shape.groups)
    return text + (f" w{gathered}" if gathered else "")
