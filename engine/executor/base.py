"""The contract between the engine and whatever computes a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from engine.cache.layer_groups import CacheLayout
from engine.config import EngineConfig
from engine.model_spec import ModelSpec
from engine.plan import StepPlan


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """Who computes: shown on screen and written on every run card."""

    kind: str                  # "model" or "simulated"
    device: str                # "cpu (2 threads)", "NVIDIA H100", "simulated H100-80GB"
    dtype: str
    backend: str               # attention backend in force, e.g. "native", "sdpa", "flash"
    notes: tuple[str, ...] = ()   # sentences about fallbacks, e.g. no compiler found

    @property
    def simulated(self) -> bool:
        return self.kind == "simulated"


@dataclass(slots=True)
class GraphReport:
    """What the graph cache did in a step. ``backend`` is ``"cuda"``, ``"cpu"`` (static buffers) or ``"simulated"``."""

    action: str                # "capture", "replay" or "eager"
    backend: str
    key: str = ""              # readable, e.g. "q64 kv1024"
    q_padding: int = 0         # query rows added
    kv_padding: int = 0        # context slots added to the longest row
    why: str = ""              # for eager: why no graph was used


@dataclass(slots=True)
class StepResult:
    """What came out of one step. Times are seconds on the room's clock.

    ``tokens`` holds one token id for each slice with ``samples``, in the order of the slices. ``logprobs`` is parallel to it:
    ``None``, or ``(logprob of the chosen token, [(token id, logprob), …] of the most likely)``.
    """

    step: int
    tokens: list[int]
    logprobs: list[tuple[float, list[tuple[int, float]]] | None]
    prepare: tuple[float, float]
    device: tuple[float, float]
    graph: GraphReport | None = None
    swap_bytes: tuple[int, int] = (0, 0)     # copied out, copied in
    details: dict[str, Any] = field(default_factory=dict)


class Clock(ABC):
    """Seconds since the room opened: real time, or the simulated device's own."""

    @abstractmethod
    def now(self) -> float: ...


class Executor(ABC):
    """Runs step plans. One instance serves one room; rooms share the weights behind it.

    ``launch`` starts a step and returns at once where the device is asynchronous; ``collect`` waits for its tokens. The
    engine calls them in strict order and has at most ``max_in_flight`` steps between the two. Whatever a slice needs is
    reached through its request: ``request.tokens`` (known token ids), ``request.tables`` (block tables by layer group,
    already extended for this step), ``request.params``, ``request.seed``. A slice may start at the position of a token that
    is still being computed by the step before (``start + count > len(request.tokens)``): the executor takes it from that
    step's own output on the device.
    """

    info: ExecutorInfo
    spec: ModelSpec
    clock: Clock
    max_in_flight: int = 1
    #: What the device can do at best: ``{"bandwidth": bytes/s, "peak_flops": FLOP/s, "source": "measured" or "data sheet"}``,
    #: or ``None`` when nobody knows. The roofline panel draws it.
    machine: dict[str, Any] | None = None

    @abstractmethod
    def free_memory(self) -> int:
        """Bytes of device memory that a new cache may be sized from (weights already subtracted)."""

    @abstractmethod
    def allocate(self, layout: CacheLayout, config: EngineConfig) -> None:
        """Make (or remake) the cache for ``layout``. Raises :class:`CapacityExceeded` when the device cannot hold it; the
        old cache is gone either way, and the engine retries with a smaller plan."""

    @abstractmethod
    def configure(self, config: EngineConfig) -> None:
        """Live knobs changed (padding intervals, graphs, async)."""

    @abstractmethod
    def launch(self, plan: StepPlan) -> Any:
        """Prepare the inputs, start the copies and the forward pass; return a handle for :meth:`collect`."""

    @abstractmethod
    def collect(self, handle: Any) -> StepResult:
        """Wait for a launched step."""

    def close(self) -> None:  # noqa: B027  an executor without anything to give back need not define it
        """Give back memory and threads."""
