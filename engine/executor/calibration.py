"""Measures this machine and puts it into the roofline, and checks what the roofline then predicts.

Probe steps on the real model give the constants; other steps, which no constant was fitted to, are predicted and measured.

* **matrix products**: FLOP/s of a decode step by number of rows, at a context so short that attention hardly counts. It holds
  everything that a row costs, and at one row it is the rate at which weights are read.
* **attention reads**: seconds per cached token and layer, from the same decode at a long and at a short context.
* **attention products**: seconds per (query, position) pair and layer, from a prefill slice deep in a prompt.
* **host**: seconds a step and a row that the executor spends on preparing its inputs.
* **copy bandwidth**: a long vector read once (:mod:`engine.executor.machine`), for comparison and for the drawn roof.

Each time is the fastest of several rounds, and probes and checks take turns within a round: what else the machine does only
ever makes a step slower.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.cache.layer_groups import CacheLayout, group_layers
from engine.config import EngineConfig
from engine.executor.base import Executor
from engine.executor.catalog import Hardware
from engine.executor.roofline import Roofline, load_of
from engine.model_spec import ModelSpec
from engine.plan import DECODE, PREFILL, Slice, StepPlan
from engine.request import Request
from engine.sampling_params import SamplingParams

BLOCK_SIZE = 16
NUM_BLOCKS = 640
SHORT, LONG, LONG_ROWS = 16, 1024, 8
PROBE_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
PROBE_SLICE = (128, 768)                    # tokens, position of the first

#: (rows, context) of decode steps and (tokens, start) of prefill slices that are predicted, not fitted.
CHECKED_DECODES = ((1, 300), (1, 1024), (3, 1500), (4, 256), (6, 512), (8, 128), (12, 300), (16, 512), (24, 100), (32, 256), (48, 64))
CHECKED_SLICES = ((32, 0), (64, 0), (128, 0), (128, 256))
#: and mixed steps: rows, context, slice.
CHECKED_MIXES = ((8, 200, 64), (16, 100, 32))


@dataclass(slots=True)
class Check:
    """One predicted step. Seconds of preparing and computing it."""

    what: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted - self.measured) / self.measured


@dataclass(slots=True)
class Calibration:
    """The constants, as the :class:`Hardware` that they make, and the checks."""

    hardware: Hardware
    model: str
    checks: list[Check] = field(default_factory=list)

    @property
    def median_error(self) -> float:
        ordered = sorted(check.error for check in self.checks)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model, "hardware": asdict(self.hardware), "median_error": self.median_error,
                "checks": [{**asdict(check), "error": check.error} for check in self.checks]}


class StepTimer:
    """Runs made-up steps on an executor: any number of requests with a cache of any length, whose content does not matter."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        spec = executor.spec
        groups = group_layers(spec)
        block_bytes = len(groups[0].layers) * spec.kv_bytes_per_token_per_layer * BLOCK_SIZE
        self.layout = CacheLayout(groups, NUM_BLOCKS * len(groups), BLOCK_SIZE, block_bytes)
        executor.allocate(self.layout, EngineConfig(block_size=BLOCK_SIZE, num_blocks=self.layout.num_blocks))

    def plan(self, pieces: list[tuple[int, int, str]]) -> StepPlan:
        """A step of (start, count, kind) for one request each, with blocks of its own."""
        taken, slices = 0, []
        for index, (start, count, kind) in enumerate(pieces):
            end = start + count
            tables = []
            for group in self.layout.groups:
                size = group.blocks_needed(end, BLOCK_SIZE)
                tables.append(list(range(taken, taken + size)))
                taken += size
            tokens = [100 + (index * 31 + place) % 1000 for place in range(end)]
            request = Request(f"probe{index}", index, tokens, end, SamplingParams(max_new_tokens=2), tables=tables)
            slices.append(Slice(request, start, count, kind, True))
        assert taken <= self.layout.num_blocks, "the step needs more blocks than were made"
        return StepPlan(1, slices)

    def decode(self, rows: int, context: int) -> StepPlan:
        return self.plan([(context - 1, 1, DECODE)] * rows)

    def time(self, plan: StepPlan) -> tuple[float, float]:
        """Seconds of (preparing, computing) one step."""
        result = self.executor.collect(self.executor.launch(plan))
        return result.prepare[1] - result.prepare[0], result.device[1] - result.device[0]


def calibrate(executor: Executor, memory_bytes: float, bandwidth: float, peak_flops: float, rounds: int = 7,
              progress: Callable[[str], None] = lambda sentence: None) -> Calibration:
    """Measure ``executor`` and check the predictions. ``bandwidth`` (bytes/s) and ``peak_flops`` are the machine's roof.

    Takes about two seconds a round for the default model on two cores.
    """
    timer = StepTimer(executor)
    decode_probes = {rows: timer.decode(rows, SHORT) for rows in PROBE_ROWS}
    long_probe, slice_probe = timer.decode(LONG_ROWS, LONG), timer.plan([(PROBE_SLICE[1], PROBE_SLICE[0], PREFILL)])
    checked = _checked_steps(timer)
    best: dict[int, tuple[float, float]] = {}
    plans = [*decode_probes.values(), long_probe, slice_probe, *(plan for _, plan in checked)]
    for number in range(rounds + 1):
        progress(f"round {number} of {rounds}" if number else "warming up")
        for plan in plans:
            prepare, device = timer.time(plan)
            if number:
                old = best.get(id(plan), (float("inf"), float("inf")))
                best[id(plan)] = (min(old[0], prepare), min(old[1], device))
    hardware = fit(executor.spec, {rows: best[id(plan)] for rows, plan in decode_probes.items()}, best[id(long_probe)][1],
                   best[id(slice_probe)][1], memory_bytes=memory_bytes, bandwidth=bandwidth, peak_flops=peak_flops,
                   dtype=executor.info.dtype, name=executor.info.device)
    roofline, checks = Roofline(hardware, executor.spec), []
    for what, plan in checked:
        load = load_of(plan.slices, executor.spec.sliding_window)
        predicted = roofline.host_time(load.rows) + roofline.step_cost(load).total
        checks.append(Check(what, predicted, sum(best[id(plan)])))
    return Calibration(hardware, executor.spec.name, checks)


def _checked_steps(timer: StepTimer) -> list[tuple[str, StepPlan]]:
    steps = [(f"{rows} decodes at {context}", timer.decode(rows, context)) for rows, context in CHECKED_DECODES]
    steps += [(f"prefill of {count} at {start}", timer.plan([(start, count, PREFILL)])) for count, start in CHECKED_SLICES]
    steps += [(f"{rows} decodes at {context} + prefill of {count}",
               timer.plan([(context - 1, 1, DECODE)] * rows + [(0, count, PREFILL)])) for rows, context, count in CHECKED_MIXES]
    return steps


def fit(spec: ModelSpec, decodes: dict[int, tuple[float, float]], long_decode: float, deep_slice: float, *, memory_bytes: float,
        bandwidth: float, peak_flops: float, dtype: str, name: str) -> Hardware:
    """The machine that explains the probes: ``decodes`` maps rows to seconds of (preparing, computing) at context ``SHORT``,
    ``long_decode`` is ``LONG_ROWS`` rows at ``LONG`` and ``deep_slice`` the prefill slice of ``PROBE_SLICE``."""
    def reads(length: int) -> int:
        """Cached tokens that one row at this context reads, over all layers."""
        load = load_of([Slice(None, length - 1, 1, DECODE, True)], spec.sliding_window)
        sliding = sum(kind != "full_attention" for kind in spec.layer_types)
        return (spec.num_layers - sliding) * load.full_reads + sliding * load.sliding_reads

    per_read = max(0.0, (long_decode - decodes[LONG_ROWS][1]) / (LONG_ROWS * (reads(LONG) - reads(SHORT))))
    rates = []
    for rows, (_, seconds) in sorted(decodes.items()):
        work = max(seconds - per_read * rows * reads(SHORT), 0.1 * seconds)
        rates.append((rows, 2.0 * spec.num_matmul_params * rows / work))
    few, many = min(decodes), max(decodes)
    per_row = max(0.0, (decodes[many][0] - decodes[few][0]) / (many - few))
    machine = Hardware(
        key="this-machine", name=name, memory_bytes=memory_bytes, bandwidth=bandwidth, peak_flops=peak_flops, host_bandwidth=bandwidth,
        link_bandwidth=bandwidth, dtype=dtype, bandwidth_efficiency=1.0, flops_efficiency=1.0, host_bandwidth_efficiency=1.0,
        kernel_launch=0.0, launch_overlaps=False, graph_gap=0.0, host_step=max(0.0, decodes[few][0] - few * per_row), host_row=per_row,
        reserved_bytes=0.0, matmul_rates=tuple(rates), attention_cost=(per_read, 0.0))
    # What is left of the slice when its matrix products are paid for is attention.
    count, start = PROBE_SLICE
    load = load_of([Slice(None, start, count, PREFILL, True)], spec.sliding_window)
    linear = Roofline(machine, spec).step_cost(load)
    sliding = sum(kind != "full_attention" for kind in spec.layer_types)
    pairs = (spec.num_layers - sliding) * load.full_pairs + sliding * load.sliding_pairs
    per_pair = max(0.0, (deep_slice - linear.linear - linear.head) / pairs)
    return _replaced(machine, attention_cost=(per_read, per_pair))


def _replaced(hardware: Hardware, **changes: Any) -> Hardware:
    return Hardware(**{**asdict(hardware), "matmul_rates": hardware.matmul_rates, **changes})


def saved_path() -> Path:
    from engine.model.cache_dir import cache_root
    return cache_root() / "calibration.json"


def save(calibration: Calibration) -> Path:
    """Keep the constants in the user's cache directory; returns the file. Raises ``OSError``."""
    path = saved_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(json.dumps({**calibration.to_dict(), "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}), encoding="utf-8")
    scratch.replace(path)
    return path


def saved_hardware() -> Hardware | None:
    """The machine as it was last calibrated, or ``None`` when it never was or the file is of another version."""
    try:
        values = json.loads(saved_path().read_text(encoding="utf-8"))["hardware"]
        return Hardware(**{**values, "matmul_rates": tuple((int(rows), float(rate)) for rows, rate in values["matmul_rates"]),
                           "attention_cost": tuple(values["attention_cost"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
