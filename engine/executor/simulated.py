"""The simulated device: a roofline cost model of a named GPU and a named model under the very same scheduler and cache.

No weights are loaded and nothing is computed: step times come from :mod:`engine.executor.roofline`, and output tokens are
pseudo-random numbers. Time is simulated time. Everything that this executor reports says ``simulated``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from engine.cache.layer_groups import CacheLayout
from engine.config import EngineConfig
from engine.errors import CapacityExceeded
from engine.executor.base import Clock, Executor, ExecutorInfo, GraphReport, StepResult
from engine.executor.catalog import Hardware
from engine.executor.roofline import Roofline, load_of
from engine.model_spec import ModelSpec
from engine.plan import PADDING, StepPlan
from engine.request import Request

#: Recorded graphs that are kept; the least recently replayed one goes first.
MAX_GRAPHS = 64
#: Capturing runs the step eagerly to warm up, records it, and instantiates the graph: this many eager steps …
CAPTURE_PASSES = 3
#: … and this long for each kernel (seconds).
CAPTURE_PER_KERNEL = 20e-6

_MASK = (1 << 64) - 1


def scramble(first: int, second: int = 0, third: int = 0) -> int:
    """64 well mixed bits out of up to three integers: the SplitMix64 finaliser (Steele et al. 2014) of a linear mix."""
    bits = first * 0x9E3779B97F4A7C15 + second * 0xD1342543DE82EF95 + third * 0xA24BAED4963EE407 & _MASK
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31


class SimulatedClock(Clock):
    """The simulated device's own time, in seconds. It moves when a step is launched or collected, and when somebody who
    waits for an arrival moves it on; never by itself."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move on to ``moment``; an earlier one changes nothing, for time does not run backwards."""
        self._now = max(self._now, moment)


@dataclass(slots=True)
class _Launched:
    plan: StepPlan
    prepare: tuple[float, float]
    device: tuple[float, float]
    graph: GraphReport
    swap_bytes: tuple[int, int]
    details: dict[str, Any]


class SimulatedExecutor(Executor):
    """Runs step plans on ``num_devices`` simulated devices in tensor parallel.

    ``tokenizer`` (anything with ``__len__``) bounds the token ids, so that they can be decoded; the text has no meaning.
    ``stop_after=(low, high)`` makes requests without ``ignore_eos`` end by themselves after a number of tokens drawn from
    their seed; otherwise no end-of-sequence token is ever produced. A run is a function of (config, workload, seed).
    """

    def __init__(self, hardware: Hardware, spec: ModelSpec, num_devices: int = 1, tokenizer: Any = None, seed: int = 0,
                 stop_after: tuple[int, int] | None = None) -> None:
        self.hardware = hardware
        self.spec = spec
        self.num_devices = num_devices
        self.tokenizer = tokenizer
        self.seed = seed
        self.stop_after = stop_after if spec.eos_token_ids else None
        self.roofline = Roofline(hardware, spec, num_devices)
        self.machine = {"bandwidth": hardware.bandwidth * num_devices, "peak_flops": hardware.peak_flops * num_devices,
                        "source": "data sheet"}
        self.clock = SimulatedClock()
        self.max_in_flight = 1
        count = f"{num_devices} × " if num_devices > 1 else ""
        self.info = ExecutorInfo(
            kind="simulated", device=f"simulated {count}{hardware.name}", dtype=hardware.dtype, backend="roofline",
            notes=("Simulated device: times come from a roofline model, and the text has no meaning.",))
        vocabulary = min(spec.vocab_size, len(tokenizer)) if tokenizer is not None else spec.vocab_size
        reserved = set(spec.eos_token_ids) | set(getattr(tokenizer, "all_special_ids", ()) or ())
        # The lowest ids are control tokens in most vocabularies; skipping a prefix that covers them keeps a draw one division.
        low_specials = [token for token in reserved if token < min(1024, vocabulary // 2)]
        self._first_id = max(low_specials, default=-1) + 1
        self._num_ids = max(1, vocabulary - self._first_id)
        self._reserved = frozenset(reserved)
        self._device_free = 0.0
        self._graphs: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._layout: CacheLayout | None = None
        self._config = EngineConfig()

    # -- memory ------------------------------------------------------------------------------------------------------

    def free_memory(self) -> int:
        """Bytes over all devices after the weights and what each device's runtime keeps for itself; may be negative."""
        weights = self.spec.num_params * self.spec.dtype_bytes
        room = self.num_devices * (self.hardware.memory_bytes - self.hardware.reserved_bytes) - weights
        # KV heads that cannot be split further are kept more than once.
        return int(room * self.roofline.kv_shards / self.num_devices)

    def allocate(self, layout: CacheLayout, config: EngineConfig) -> None:
        self._layout = None
        self._graphs.clear()
        needed, room = (layout.num_blocks + 2) * layout.block_bytes, self.free_memory()
        if needed > room:
            raise CapacityExceeded("device_memory", (
                f"{self.spec.name} with a cache of {layout.num_blocks} blocks does not fit {self.info.device}: the cache needs "
                f"{needed / 1e9:.1f} GB and {max(room, 0) / 1e9:.1f} GB are left beside the weights; use fewer blocks, more devices or a smaller model."))
        self._layout = layout
        self.configure(config)

    def configure(self, config: EngineConfig) -> None:
        old, self._config = self._config, config
        self.max_in_flight = 2 if config.use_async_batching else 1
        if not config.use_cuda_graph or (old.q_padding_interval_size, old.kv_padding_interval_size) != (
                config.q_padding_interval_size, config.kv_padding_interval_size):
            self._graphs.clear()

    # -- steps -------------------------------------------------------------------------------------------------------

    def launch(self, plan: StepPlan) -> _Launched:
        """Work out when the step starts and ends. The clock moves over the host's part only."""
        assert self._layout is not None, "allocate comes before launch"
        load = load_of(plan.slices, self.spec.sliding_window)
        started = self.clock.now()
        prepared = started + self.roofline.host_time(load.rows)
        self.clock.advance_to(prepared)
        graph = self._graph_for(load.query_tokens, load.longest_context)
        load.query_tokens += graph.q_padding
        cost = self.roofline.step_cost(load, replayed=graph.action == "replay")
        seconds = cost.total
        if graph.action == "capture":
            seconds = CAPTURE_PASSES * seconds + CAPTURE_PER_KERNEL * self.roofline.num_kernels
        block_bytes = self._layout.block_bytes
        swapped = (len(plan.swap_out) * block_bytes, len(plan.swap_in) * block_bytes)
        copies = (self.roofline.copy_time(swapped[0]) + self.roofline.copy_time(swapped[1])
                  + self.roofline.block_copy_time(len(plan.copies) * block_bytes))
        # One stream of work on the device: a step begins when its inputs are there and the step before has ended.
        begin = max(prepared, self._device_free)
        self._device_free = begin + copies + seconds
        details = {"bound": self.roofline.bound(cost), "flops": cost.flops, "bytes": cost.bytes_read, "linear": cost.linear,
                   "attention": cost.attention, "head": cost.head, "all_reduce": cost.all_reduce, "launch": cost.launch,
                   "copies": copies}
        return _Launched(plan, (started, prepared), (begin, self._device_free), graph, swapped, details)

    def collect(self, handle: _Launched) -> StepResult:
        """Move the clock to the end of the step and hand out its tokens."""
        self.clock.advance_to(handle.device[1])
        tokens, logprobs = [], []
        for request, start, count, kind, samples in handle.plan.slices:
            if samples and kind != PADDING:
                tokens.append(self.token_at(request, start + count))
                logprobs.append(None)
        return StepResult(step=handle.plan.step, tokens=tokens, logprobs=logprobs, prepare=handle.prepare, device=handle.device,
                          graph=handle.graph, swap_bytes=handle.swap_bytes, details=handle.details)

    def token_at(self, request: Request, position: int) -> int:
        """The token at that position of a request: the same whatever else is in the batch, and after a preemption too."""
        if self.stop_after is not None and not request.params.ignore_eos:
            low, high = self.stop_after
            length = low + scramble(self.seed, request.seed, -1) % (high - low + 1)
            if position - request.num_prompt_tokens + 1 >= max(length, request.params.min_new_tokens):
                return self.spec.eos_token_ids[0]
        bits = scramble(self.seed, request.seed, position)
        token = self._first_id + bits % self._num_ids
        while token in self._reserved:
            bits = scramble(bits)
            token = self._first_id + bits % self._num_ids
        return token

    def _graph_for(self, query_tokens: int, longest_context: int) -> GraphReport:
        config = self._config
        if not config.use_cuda_graph:
            return GraphReport("eager", "simulated", why="use_cuda_graph is off")
        if not query_tokens:
            return GraphReport("eager", "simulated", why="the step only copies")
        q_step, kv_step = config.q_padding_interval_size, config.kv_padding_interval_size
        q_size, kv_size = -(-query_tokens // q_step) * q_step, -(-longest_context // kv_step) * kv_step
        key = (q_size, kv_size)
        action = "replay" if key in self._graphs else "capture"
        self._graphs[key] = None
        self._graphs.move_to_end(key)
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        return GraphReport(action, "simulated", key=f"q{q_size} kv{kv_size}", q_padding=q_size - query_tokens,
                           kv_padding=kv_size - longest_context)
