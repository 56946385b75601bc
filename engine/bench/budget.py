"""Where the time of a step goes on this CPU, and what it reads and computes a second.

Steps of 1, 8 and 32 decoding requests and of one slice of 256 prompt tokens: milliseconds per phase of the fused decoder, of the
host's work around it (schedule, index tensors, commit, event), and what the whole step comes to in bytes of weights and cache read a
second and in arithmetic a second, to be held against the machine's limits. JSON: ``steps``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from engine.bench.room import open_executors, run_card
from engine.bench.table import print_table
from engine.errors import CommandRefused

CONTEXT = 128
SHAPES = (("1 decode", 1, 0), ("8 decodes", 8, 0), ("32 decodes", 32, 0), ("256 prompt tokens", 0, 256))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.bench budget", description=__doc__.split("\n")[0])
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--steps", type=int, default=25, help="steps a row; the quietest quarter counts")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    new_executor, tokenizer = open_executors("model", options.model, options.dtype)
    executor = new_executor()
    steps = {name: step_budget(executor, tokenizer, decodes, prompt, options.steps) for name, decodes, prompt in SHAPES}
    phases = list(steps["1 decode"]["phases"])
    print_table(["ms", *steps], [
        *[[phase, *[f"{step['phases'][phase]:.2f}" for step in steps.values()]] for phase in phases],
        ["host", *[f"{step['host_ms']:.2f}" for step in steps.values()]],
        ["whole step", *[f"{step['step_ms']:.2f}" for step in steps.values()]],
        ["reading, GB/s", *[f"{step['bytes_per_second'] / 1e9:.1f}" for step in steps.values()]],
        ["arithmetic, GFLOP/s", *[f"{step['flops_per_second'] / 1e9:.0f}" for step in steps.values()]]])
    if options.json:
        options.json.write_text(json.dumps({"card": run_card(executor, 0), "steps": steps}, indent=1) + "\n", encoding="utf-8")
    return 0


def step_budget(executor: Any, tokenizer: Any, decodes: int, prompt: int, count: int) -> dict[str, Any]:
    """The mean over the quietest quarter of ``count`` equal steps. Raises :class:`CommandRefused` without the fused decoder."""
    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.model.forward import fused_decoder
    from engine.model.fused_decoder import PHASES, FusedDecoder
    from engine.sampling_params import SamplingParams
    config = EngineConfig().replaced({"block_size": 16, "num_blocks": 600, "max_batch_tokens": 256, "max_requests_per_batch": 64,
                                      "safety_margin": 0.0, "allow_block_sharing": False})
    engine = Engine(executor, config, tokenizer=tokenizer)
    decoder = fused_decoder(executor._model)
    if not isinstance(decoder, FusedDecoder):
        raise CommandRefused("no_fused_decoder", f"There are no phases to show, since the fused CPU decoder is not used: {decoder}.")
    samples: list[tuple[float, list[float]]] = []
    for i in range(decodes):
        engine.submit([100 + (13 * i + j) % 900 for j in range(CONTEXT - count // 2)], SamplingParams(max_new_tokens=count + 50, ignore_eos=True))
    while decodes and any(request.num_output_tokens < 1 for request in engine.requests.values()):
        engine.step()
    for i in range(count):
        if prompt:
            engine.submit([100 + (17 * i + j) % 900 for j in range(prompt)], SamplingParams(max_new_tokens=1, ignore_eos=True))
        decoder.seconds.zero_()
        begin = time.perf_counter()
        engine.step()
        engine.take_events()
        samples.append((time.perf_counter() - begin, decoder.seconds.tolist()))
    quiet = sorted(samples)[:max(1, count // 4)]
    step = sum(seconds for seconds, _ in quiet) / len(quiet)
    phases = [sum(parts[i] for _, parts in quiet) / len(quiet) for i in range(len(PHASES))]
    spec, rows = executor.spec, decodes or prompt
    # Attention reads the context of each row; the LM head multiplies sampled rows only.
    cached = decodes * CONTEXT if decodes else prompt
    head = spec.hidden_size * spec.vocab_size
    flops = 2 * rows * (spec.num_matmul_params - head) + 2 * max(1, decodes) * head
    moved = spec.num_matmul_params * spec.dtype_bytes + cached * spec.kv_bytes_per_token
    return {"step_ms": step * 1e3, "host_ms": (step - sum(phases)) * 1e3, "phases": {name: part * 1e3 for name, part in zip(PHASES, phases)},
            "bytes_per_second": moved / step, "flops_per_second": flops / step}
