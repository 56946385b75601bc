"""What scheduling costs a step, and how it grows with the number of waiting and running requests.

The engine runs on the simulated device, so the only real time is its own: ``schedule`` is the scheduler with the cache
bookkeeping, ``step`` the whole turn with commit and event. Each figure is the median over the measured steps, in CPU time of
the engine's thread, so that other processes on the machine do not count.

    python -m engine.bench schedule --waiting 10,100,1000,10000 --running 1000
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from engine.bench.room import run_card
from engine.bench.table import print_table, seconds
from engine.config import EngineConfig
from engine.engine import Engine
from engine.executor.catalog import find_gpu, find_model
from engine.executor.simulated import SimulatedExecutor
from engine.sampling_params import SamplingParams

PROMPT = 32


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.bench schedule", description=__doc__.split("\n")[0])
    parser.add_argument("--waiting", default="10,100,1000,10000", help="numbers of waiting requests")
    parser.add_argument("--running", default="10,100,1000", help="numbers of running requests")
    parser.add_argument("--steps", type=int, default=60, help="measured steps of each")
    parser.add_argument("--scheduler", default="fifo", choices=("fifo", "prefill_first", "static"))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    results = [measure(int(running), int(waiting), options.steps, options.scheduler)
               for running in options.running.split(",") for waiting in options.waiting.split(",")]
    print("CPU time of the engine's thread a step, on this machine; the device is simulated. Medians, and the schedule's 90th percentile.\n")
    print_table(["running", "waiting", "schedule", "p90", "step", "step without events"],
                [[one["running"], one["waiting"], *(seconds(one[name]) for name in ("schedule", "schedule_p90", "step", "step_unrecorded"))]
                 for one in results])
    if options.json:
        card = run_card(_executor(), 0, scheduler=options.scheduler, steps=options.steps)
        Path(options.json).write_text(json.dumps({"card": card, "results": results}, indent=1), encoding="utf-8")
    return 0


def _executor() -> SimulatedExecutor:
    return SimulatedExecutor(find_gpu("h100"), find_model("llama-8b"), 8)


def measure(running: int, waiting: int, steps: int, scheduler: str = "fifo") -> dict[str, Any]:
    """Seconds of one step's scheduling with ``running`` decodes in the batch and ``waiting`` requests behind the cap."""
    schedule, whole = _timed_steps(running, waiting, steps, scheduler, record=True)
    unrecorded = _timed_steps(running, waiting, steps, scheduler, record=False)[1]
    return {"running": running, "waiting": waiting, "schedule": statistics.median(schedule),
            "schedule_p90": sorted(schedule)[int(0.9 * (len(schedule) - 1))], "step": statistics.median(whole),
            "step_unrecorded": statistics.median(unrecorded)}


def _timed_steps(running: int, waiting: int, steps: int, scheduler: str, record: bool) -> tuple[list[float], list[float]]:
    config = EngineConfig(scheduler_type=scheduler, block_size=16, num_blocks=running * 40 + 64, max_batch_tokens=65536,
                          max_requests_per_batch=running, safety_margin=0.0)
    engine = Engine(_executor(), config, record=record)
    for index in range(running + waiting):
        # Different prompts, so that no prefix is shared and every request has work of its own.
        engine.submit([index % 1000 + 5] * 2 + [(index * 7919 + place) % 100_000 for place in range(PROMPT - 2)],
                      SamplingParams(max_new_tokens=500, ignore_eos=True))
    while sum(request.num_output_tokens > 0 for request in engine.scheduler.active.values()) < running:
        engine.step()
        engine.take_events()
    schedule_times: list[float] = []
    inner = engine.scheduler.schedule

    def timed(*values: Any) -> None:
        began = time.thread_time()
        inner(*values)
        schedule_times.append(time.thread_time() - began)

    engine.scheduler.schedule = timed
    whole = []
    for _ in range(steps):
        began = time.thread_time()
        engine.step()
        whole.append(time.thread_time() - began)
        engine.take_events()
    return schedule_times, whole
