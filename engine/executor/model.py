"""The real model: prepares a packed batch for each step plan, runs it and brings the tokens back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from engine.cache.layer_groups import CacheLayout
from engine.config import EngineConfig
from engine.errors import CapacityExceeded
from engine.executor.base import Executor, ExecutorInfo, GraphReport, StepResult
from engine.executor.batch_buffers import BatchBuffers, BatchShape
from engine.executor.batch_builder import BatchBuilder, BuiltBatch, Intervals
from engine.executor.clock import RealClock
from engine.executor.device_lane import CudaLane, InlineLane, Job, Lane, ThreadLane
from engine.executor.graphs import CpuStep, CudaStep, GraphCache, RecordedStep
from engine.executor.memory import free_bytes
from engine.executor.swap_pool import SwapPool, copy_blocks
from engine.model.forward import make_forward
from engine.model.packed_batch import Forward, PackedBatch, PagedKVCache
from engine.model.sampling import Sampled, SamplingInputs, logprobs_of, sample, sampling_inputs
from engine.plan import StepPlan
from engine.request import Request


@dataclass(slots=True)
class LaunchedStep:
    """A step between launch and collect. ``sample_of`` says which sample belongs to which request: the step after may need
    one of them before the host has seen it."""

    plan: StepPlan
    built: BuiltBatch | None
    sampling: SamplingInputs
    report: GraphReport
    recorded: RecordedStep | None
    sample_of: dict[Request, int]
    before: LaunchedStep | None
    job: Job | None = None
    prepare: tuple[float, float] = (0.0, 0.0)
    on_device: Sampled | None = None
    swap_bytes: tuple[int, int] = (0, 0)


class ModelExecutor(Executor):
    """Runs plans on a loaded model. ``loaded`` has ``model``, ``spec`` and ``notes``; its weights may be shared with other
    executors, one for each room.

    On CUDA a step is enqueued at launch and the host goes on. On a CPU it is computed at launch, or with async batching in
    a worker thread. Raises :class:`ModelUnavailable` at the first :meth:`allocate` when the model cannot be paged.
    """

    def __init__(self, loaded: Any, clock: RealClock | None = None) -> None:
        self.spec = loaded.spec
        self.clock = clock or RealClock()
        self.max_in_flight = 1
        self._model = loaded.model
        self._device: torch.device = loaded.model.device
        self._dtype: torch.dtype = loaded.model.dtype
        self._notes = tuple(getattr(loaded, "notes", ()))
        self.info = self._describe("", ())
        self._cache: PagedKVCache | None = None
        self._swap: SwapPool | None = None
        self._forward: Forward | None = None
        self._builder: BatchBuilder | None = None
        self._graphs: GraphCache | None = None
        self._config = EngineConfig()
        self._free_at_first = free_bytes(self._device)
        self._inline: Lane = (
            CudaLane(self.clock, self._device) if self._device.type == "cuda" else InlineLane(self.clock, self._model)
        )
        self._lane = self._inline
        self._previous: LaunchedStep | None = None
        self._launches = 0

    # -- memory ------------------------------------------------------------------------------------------------------

    def free_memory(self) -> int:
        own = self._cache.storage.nbytes if self._cache is not None else 0
        # On a CPU a part of the cache may never have been touched, and would be counted twice.
        return min(free_bytes(self._device) + own, self._free_at_first)

    def allocate(self, layout: CacheLayout, config: EngineConfig) -> None:
        self._release()
        block = (
            2
            * len(layout.groups[0].layers)
            * layout.block_size
            * self.spec.num_kv_heads
            * self.spec.head_dim
            * self._dtype.itemsize
        )
        needed, host = (layout.num_blocks + 2) * block, layout.num_swap_slots * block
        self._demand(needed if self._device.type == "cuda" else needed + host, free_bytes(self._device), layout)
        if host and self._device.type == "cuda":
            self._demand(host, free_bytes(torch.device("cpu")), layout)
        try:
            # Not inference tensors, whoever calls: they are written to in place from inside and outside inference mode.
            with torch.inference_mode(False):
                self._cache = PagedKVCache(layout, self.spec.num_kv_heads, self.spec.head_dim, self._dtype, self._device)
                self._swap = SwapPool(self._cache, layout.num_swap_slots) if layout.num_swap_slots else None
        except (RuntimeError, MemoryError) as error:
            self._release()
            raise self._too_large(layout, needed + host) from error
        self._builder = BatchBuilder(layout)
        self._graphs = GraphCache("cuda" if self._device.type == "cuda" else "cpu", self._new_recorded_step)
        if self._device.type == "cuda":
            self._graph_pool = torch.cuda.graph_pool_handle()  # a new one: a pool whose graphs are all gone cannot be used again
        self._forward, backend, notes = make_forward(self._model, self.spec, config.attention_backend, self._cache)
        self.info = self._describe(backend, notes)
        self.configure(config)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)       # the cache was zeroed on another stream than the steps run on

    def _demand(self, needed: int, room: int, layout: CacheLayout) -> None:
        if needed > room:
            raise self._too_large(layout, needed, room)

    def _too_large(self, layout: CacheLayout, needed: int, room: int | None = None) -> CapacityExceeded:
        left = "" if room is None else f" and {room / 1e9:.1f} GB are free"
        return CapacityExceeded(
            "device_memory",
            f"A cache of {layout.num_blocks} blocks and {layout.num_swap_slots} host slots does "
            f"not fit {self.info.device}: it needs {needed / 1e9:.1f} GB{left}; use fewer blocks or less offload space.",
        )

    def _release(self) -> None:
        self._drain()
        self._previous = None
        self._cache = self._swap = self._builder = self._forward = None
        if self._graphs is not None:
            self._graphs.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _drain(self) -> None:
        """Wait for a step that is still running, so that nothing writes into a cache that is going away."""
        if self._previous is not None and self._previous.job is not None:
            with suppress(Exception):        # whoever collects that step is told
                self._lane.finish(self._previous.job)

    def configure(self, config: EngineConfig) -> None:
        self._config = config
        self.max_in_flight = 2 if config.use_async_batching else 1
        threaded = config.use_async_batching and self._device.type == "cpu"
        if threaded != isinstance(self._lane, ThreadLane):
            self._drain()
            self._lane = ThreadLane(self.clock, self._model) if threaded else self._inline

    def close(self) -> None:
        self._release()

    # -- steps -------------------------------------------------------------------------------------------------------

    def launch(self, plan: StepPlan) -> LaunchedStep:
        begin = self.clock.now()
        with torch.inference_mode(False), self._lane.preparing():
            step = self._prepare(plan)
        step.job = Job(upload=step.built.buffers.upload if step.built else _nothing, compute=lambda: self._compute(step),
                       to_host=lambda sampled: self._to_host(step, sampled))
        step.prepare = (begin, self.clock.now())
        self._previous = step
        self._lane.start(step.job)
        return step

    def collect(self, handle: LaunchedStep) -> StepResult:
        # The job's functions refer to the step, so without this a step's buffers would wait for the cycle collector.
        job, handle.job = handle.job, None
        self._lane.finish(job)
        if self._previous is handle:
            self._previous = None
        sampled = job.result
        return StepResult(
            step=handle.plan.step, tokens=sampled.tokens.tolist(), logprobs=logprobs_of(sampled, handle.sampling),
            prepare=handle.prepare, device=job.device, graph=handle.report, swap_bytes=handle.swap_bytes,
            details={"forward": self._forward.name})

    def _prepare(self, plan: StepPlan) -> LaunchedStep:
        """Everything the host can do before the device is free."""
        sampling_slices = [piece for piece in plan.slices if piece.samples]
        before = self._previous
        step = LaunchedStep(
            plan,
            None,
            SamplingInputs(),
            GraphReport("eager", self._graphs.backend, why="the step only copies blocks"),
            None,
            {piece.request: i for i, piece in enumerate(sampling_slices)},
            before,
        )
        if not plan.slices:
            return step
        graphs = self._graphs if self._config.use_cuda_graph else None
        intervals, pair = Intervals(), self._launches % 2
        self._launches += 1
        if graphs is not None:
            intervals = Intervals(self._config.q_padding_interval_size, self._config.kv_padding_interval_size)

        def buffers_for(shape: BatchShape) -> BatchBuffers:
            if graphs is None:
                return BatchBuffers(shape, self._builder.windows, self._device)
            step.recorded = graphs.find(shape)
            return step.recorded.buffers[pair]

        step.built = built = self._builder.build(plan, intervals, buffers_for, before.sample_of if before else {})
        step.sampling = sampling_inputs(sampling_slices, self._device)
        if graphs is None:
            step.report = GraphReport("eager", self._graphs.backend, why="graphs are switched off")
        else:
            step.report = graphs.report(built.buffers.shape, built.query_padding, built.kv_padding)
        return step

    @torch.inference_mode()
    def _compute(self, step: LaunchedStep) -> Sampled:
        """The device's part, in order: copies out, copies in, block copies, forward pass, choice of tokens."""
        plan, built = step.plan, step.built
        out = self._swap.copy_out(plan.swap_out) if plan.swap_out else 0
        back = self._swap.copy_in(plan.swap_in) if plan.swap_in else 0
        step.swap_bytes = (out, back)
        if plan.copies:
            copy_blocks(self._cache, plan.copies)
        before, step.before = step.before, None        # or every step would keep all earlier ones alive
        if built is None:
            return Sampled(torch.empty(0, dtype=torch.int64, device=self._device))
        carried = before.on_device.tokens if built.has_carry else None
        chooses = step.sampling.all_greedy and hasattr(self._forward, "greedy")     # then no logits are written down
        run = self._run_greedy if chooses else self._run_forward
        if step.recorded is not None:
            out = self._graphs.run(step.recorded, built.buffers, carried, step.report, run)
        else:
            if carried is not None:
                built.buffers.take_carried(carried)
            out = run(built.buffers.batch)
        step.on_device = Sampled(out[:built.num_samples]) if chooses else sample(out[:built.num_samples], step.sampling)
        return step.on_device

    def _run_forward(self, batch: PackedBatch) -> torch.Tensor:
        return self._forward(batch, self._cache)

    def _run_greedy(self, batch: PackedBatch) -> torch.Tensor:
        return self._forward.greedy(batch, self._cache)

    def _to_host(self, step: LaunchedStep, sampled: Sampled) -> Sampled:
        if self._device.type == "cpu":
            return sampled
        tensors = [sampled.tokens, sampled.chosen, sampled.top_values, sampled.top_ids]
        return Sampled(*[None if tensor is None else
                         torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
                         for tensor in tensors])

    def _new_recorded_step(self, shape: BatchShape) -> RecordedStep:
        if self._device.type == "cuda":
            return CudaStep(shape, self._builder.windows, self._device, self._graph_pool)
        return CpuStep(shape, self._builder.windows, self._device)

    def _describe(self, backend: str, notes: tuple[str, ...] | list[str]) -> ExecutorInfo:
        if self._device.type == "cuda":
            device = torch.cuda.get_device_name(self._device)
        else:
            threads = torch.get_num_threads()
            device = f"cpu ({threads} thread{'s' if threads > 1 else ''})"
        return ExecutorInfo("model", device, str(self._dtype).removeprefix("torch."), backend, (*self._notes, *notes))


def _nothing() -> None:
    pass
