"""Measure this machine on the real model, predict other steps by the roofline, and print how far off it is.

    python -m engine.bench calibrate            afterwards --device simulated:this-machine uses what was measured
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from engine.bench.room import open_executors, run_card
from engine.bench.table import print_table, seconds, share
from engine.executor import calibration

WANTED = 0.25


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.bench calibrate", description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="Hub name or path; default: the default model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=7, help="the fastest of so many counts")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    make_executor, _ = open_executors("model", options.model, options.dtype)
    from engine.executor.machine import measure_machine
    executor = make_executor()
    roof = measure_machine(executor.info.device.split(" ")[0] if executor.info.device.startswith("cpu") else "cuda", executor.info.dtype)
    result = calibration.calibrate(executor, executor.free_memory(), roof["bandwidth"], roof["peak_flops"], options.rounds,
                                   lambda sentence: print(f"\r{sentence}   ", end="", file=sys.stderr, flush=True))
    print(file=sys.stderr)
    machine = result.hardware
    print(f"{result.model} ({machine.dtype}) on {machine.name}, backend {executor.info.backend}\n")
    print(f"copy bandwidth {roof['bandwidth'] / 1e9:.1f} GB/s; matrix peak {roof['peak_flops'] / 1e9:.0f} GFLOP/s")
    print("products by rows: " + ", ".join(f"{rows}: {rate / 1e9:.0f} GFLOP/s" for rows, rate in machine.matmul_rates))
    per_read, per_pair = machine.attention_cost
    kv = executor.spec.kv_bytes_per_token_per_layer
    print(f"attention reads {kv / per_read / 1e9:.1f} GB/s" if per_read else "attention reads cost nothing measurable", end="; ")
    print(f"attention products {4 * executor.spec.num_heads * executor.spec.head_dim / per_pair / 1e9:.1f} GFLOP/s" if per_pair
          else "attention products cost nothing measurable")
    print(f"host {seconds(machine.host_step)} a step and {seconds(machine.host_row)} a row\n")
    print_table(["step (not fitted)", "predicted", "measured", "error"],
                [[check.what, seconds(check.predicted), seconds(check.measured), share(check.error)] for check in result.checks])
    print(f"\nmedian error {result.median_error:.1%} (wanted: within {WANTED:.0%})")
    try:
        print(f"constants kept in {calibration.save(result)}")
    except OSError as problem:
        print(f"The constants could not be kept: {problem.strerror}.", file=sys.stderr)
    if options.json:
        card = run_card(executor, 0, rounds=options.rounds)
        Path(options.json).write_text(json.dumps({"card": card, **result.to_dict()}, indent=1), encoding="utf-8")
    executor.close()
    return 0 if result.median_error <= WANTED else 1
