"""The knobs of the engine: one dataclass whose field metadata is the single source for the form, the checks and the docs.

The names are those of transformers' ``ContinuousBatchingConfig``; ``alias`` is vLLM's name where one exists.
``live`` knobs take effect at the next step. The others need a new cache: it is rebuilt, every request keeps its
tokens and is queued again (a soft reset), and none is lost.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from engine.errors import ConfigRefused

SCHEDULER_TYPES = ("fifo", "prefill_first", "static")
DEMOTION_POLICIES = ("most_recent", "lru")
ATTENTION_BACKENDS = ("auto", "native", "sdpa", "varlen", "flash")

#: ``safety_margin`` left to the scheduler: FIFO keeps 15 % of the blocks back, the others none.
DEFAULT_SAFETY_MARGIN = {"fifo": 0.15, "prefill_first": 0.0, "static": 0.0}


def knob(default: Any, help: str, *, group: str, live: bool, low: float | None = None, high: float | None = None,
         step: float | None = None, choices: tuple[str, ...] | None = None, alias: str | None = None,
         unit: str = "", auto: str | None = None) -> Any:
    """A dataclass field with what a form and a check need to know.

    ``low``/``high``/``step`` bound a number; ``auto`` says in words what ``None`` stands for (only such fields take
    ``None``); ``unit`` is shown behind the number.
    """
    return field(default=default, metadata={
        "help": help, "group": group, "live": live, "low": low, "high": high, "step": step,
        "choices": choices, "alias": alias, "unit": unit, "auto": auto,
    })


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What a room's engine runs with. Immutable; :meth:`replaced` makes a checked changed copy.

    Raises :class:`ConfigRefused` on construction when a value has the wrong type, is out of bounds, or cannot work
    together with another one.
    """

    scheduler_type: str = knob(
        "fifo", "Who goes first: fifo serves decodes, then unfinished prefills, then arrivals in order; prefill_first "
        "finishes prompts before decoding on; static gathers a fixed batch and waits for its slowest member.",
        group="scheduling", live=True, choices=SCHEDULER_TYPES)
    max_batch_tokens: int = knob(
        256, "Query tokens computed in one step, over all requests: the size of a prefill slice, and so the longest "
        "pause a prompt can put on everybody else.",
        group="scheduling", live=True, low=1, high=65536, step=1, alias="max_num_batched_tokens", unit="tokens")
    max_requests_per_batch: int = knob(
        16, "Requests that may be in the batch at once. Each one adds a row of logits, as wide as the vocabulary.",
        group="scheduling", live=True, low=1, high=4096, step=1, alias="max_num_seqs", unit="requests")
    max_kv_read_tokens: int | None = knob(
        None, "Cached tokens that one step may read, summed over its requests: bounds the memory traffic of a step.",
        group="scheduling", live=True, low=1, high=2**31, step=1, unit="tokens", auto="the whole cache")
    chunked_prefill: bool = knob(
        True, "Split long prompts into slices that ride along with decodes. Off: a prompt is computed in one step, "
        "and everybody waits for it.", group="scheduling", live=True, alias="enable_chunked_prefill")
    safety_margin: float | None = knob(
        None, "Share of the blocks that must stay free before a new request may start, so that running ones can grow.",
        group="scheduling", live=True, low=0.0, high=0.95, step=0.05, auto="0.15 for fifo, 0 otherwise")

    block_size: int = knob(
        256, "Tokens per cache block. Small blocks waste less in the last one; large blocks make shorter tables.",
        group="cache", live=False, low=4, high=4096, step=1, alias="block_size", unit="tokens")
    num_blocks: int | None = knob(
        None, "Blocks in the pool that all requests draw from.", group="cache", live=False, low=1, high=2**22, step=1,
        alias="num_gpu_blocks_override", unit="blocks", auto="solved from free memory")
    max_memory_percent: float = knob(
        0.9, "Share of the free device memory that the cache may take when num_blocks is automatic.",
        group="cache", live=False, low=0.01, high=0.98, step=0.01, alias="gpu_memory_utilization")
    allow_block_sharing: bool = knob(
        True, "Reuse blocks whose content was computed before (prefix caching). Only for models whose every layer has "
        "full attention.", group="cache", live=True, alias="enable_prefix_caching")
    demotion_policy: str = knob(
        "most_recent", "Which initialized block loses its content first when fresh ones run out: the most recently freed "
        "(as transformers does) or the least recently used (as vLLM does).",
        group="cache", live=True, choices=DEMOTION_POLICIES)
    cpu_offload_space: float = knob(
        0.0, "Host memory for the blocks of preempted requests. With 0 they are recomputed instead (soft reset).",
        group="cache", live=False, low=0.0, high=1024.0, step=0.01, alias="swap_space", unit="GiB")

    use_cuda_graph: bool = knob(
        False, "Pad shapes to intervals so that they repeat and a recorded step can be replayed. On a CPU static buffers "
        "stand in for the graph, and every event says so.", group="graphs", live=True, alias="enforce_eager (inverted)")
    q_padding_interval_size: int = knob(
        16, "Query rows are padded up to a multiple of this, so that fewer shapes have to be captured.",
        group="graphs", live=True, low=1, high=8192, step=1, unit="tokens")
    kv_padding_interval_size: int = knob(
        256, "The longest context of a step is padded up to a multiple of this.",
        group="graphs", live=True, low=1, high=2**20, step=1, unit="tokens")
    use_async_batching: bool = knob(
        False, "Prepare step N+1 while step N computes. Needs use_cuda_graph, and about twice the input and output "
        "buffers.", group="graphs", live=True, alias="async_scheduling")

    attention_backend: str = knob(
        "auto", "How attention reads the paged cache: native (this project's CPU kernel), sdpa (any device, the "
        "reference), varlen (PyTorch, CUDA), flash (flash-attn, CUDA); auto takes the fastest that works here.",
        group="model", live=False, choices=ATTENTION_BACKENDS)
    seed: int = knob(
        0, "Seed from which each request without one of its own derives its sampling seed.",
        group="model", live=True, low=0, high=2**31 - 1, step=1)

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _check_field(item, getattr(self, item.name))
        if self.use_async_batching and not self.use_cuda_graph:
            raise ConfigRefused("config_conflict", "use_async_batching needs use_cuda_graph, because the next step may only "
                                "be prepared into buffers that do not move; switch use_cuda_graph on, or async batching off.")

    @property
    def effective_safety_margin(self) -> float:
        """The share in force: the explicit one, else the scheduler's default."""
        return DEFAULT_SAFETY_MARGIN[self.scheduler_type] if self.safety_margin is None else self.safety_margin

    def replaced(self, changes: dict[str, Any]) -> EngineConfig:
        """A checked copy with ``changes`` applied. Raises :class:`ConfigRefused` for an unknown name or a bad value."""
        known = {item.name for item in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise ConfigRefused("unknown_knob", f"There is no knob named {str(name)[:60]!r}; the knobs are {', '.join(sorted(known))}.")
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name, JSON-ready."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EngineConfig:
        """Inverse of :meth:`to_dict`; missing names take their defaults. Raises :class:`ConfigRefused`."""
        if not isinstance(values, dict):
            raise ConfigRefused("config_type", "A configuration must be an object of knob names and values.")
        return cls().replaced(values)

    def needs_rebuild(self, other: EngineConfig) -> bool:
        """Whether going from this config to ``other`` needs a new cache."""
        return any(getattr(self, item.name) != getattr(other, item.name)
                   for item in dataclasses.fields(self) if not item.metadata["live"])


def _check_field(item: dataclasses.Field, value: Any) -> None:
    meta = item.metadata
    if value is None:
        if meta["auto"] is None:
            raise ConfigRefused("config_type", f"{item.name} needs a value; it has no automatic setting.")
        return
    if meta["choices"] is not None:
        if value not in meta["choices"]:
            raise ConfigRefused("config_choice", f"{item.name} must be one of {', '.join(meta['choices'])}, not {str(value)[:60]!r}.")
        return
    kind = str(item.type).split(" | ")[0]
    if kind == "bool":
        if not isinstance(value, bool):
            raise ConfigRefused("config_type", f"{item.name} must be true or false, not {str(value)[:60]!r}.")
        return
    # bool is an int in Python; a switch sent where a number belongs is a mistake worth naming.
    good = isinstance(value, int) if kind == "int" else isinstance(value, (int, float))
    if isinstance(value, bool) or not good or not math.isfinite(value):
        noun = "a whole number" if kind == "int" else "a number"
        raise ConfigRefused("config_type", f"{item.name} must be {noun}, not {str(value)[:60]!r}.")
    if value < meta["low"] or value > meta["high"]:
        raise ConfigRefused("config_bounds", f"{item.name} must lie between {meta['low']:g} and {meta['high']:g}, not {value:g}.")


def describe_knobs() -> list[dict[str, Any]]:
    """Every knob with its default and metadata, JSON-ready: what the page's form is generated from."""
    return [{"name": item.name, "default": item.default, "type": str(item.type).split(" | ")[0], **item.metadata}
            for item in dataclasses.fields(EngineConfig)]
