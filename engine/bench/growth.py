"""How speed grows or falls: output tokens per second against concurrent requests, context length and number of cache blocks.

Each point is the median of steady decode steps on the model. ``--svg FILE`` draws the three curves. JSON: ``curves.<name>`` is a
list of ``[x, tokens per second, milliseconds per step]``, beside ``card``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from engine.bench.room import open_executors, run_card
from engine.bench.table import print_table

CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXT = (128, 256, 512, 1024, 2048, 4096, 8192)
BLOCKS = (64, 256, 1024, 4096, 16384, 65536)
AXES = {"concurrency": "concurrent requests (context 64)", "context": "tokens of context (1 request)", "blocks": "cache blocks of 4 tokens (8 requests)"}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    new_executor, tokenizer = open_executors("model", options.model, options.dtype)
    executor = new_executor()
    limit = executor.spec.max_position or max(CONTEXT)
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for name in options.curves.split(","):
        points = {"concurrency": [(count, count, 64, {"block_size": 16, "num_blocks": 8 * max(CONCURRENCY) + 64}) for count in CONCURRENCY],
                  "context": [(length, 1, min(length, limit - options.steps - 8), {"block_size": 64, "num_blocks": 160}) for length in CONTEXT
                              if length <= limit],
                  "blocks": [(blocks, 8, 8, {"block_size": 4, "num_blocks": blocks}) for blocks in BLOCKS]}[name]
        curves[name] = []
        for x, requests, length, knobs in points:
            step = decode_step(executor, tokenizer, requests, length, knobs, options.steps)
            curves[name].append((x, requests / step, step * 1e3))
            print(f"{name} {x:,}: {requests / step:.0f} tok/s", file=sys.stderr)
    for name, points in curves.items():
        print()
        print_table([AXES[name], "tok/s", "ms/step"], [[f"{x:,}", f"{speed:.0f}", f"{step:.2f}"] for x, speed, step in points])
    if options.json:
        options.json.write_text(json.dumps({"card": run_card(executor, 0), "curves": curves}, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(draw(curves, f"{executor.spec.name.split('/')[-1]}, {executor.info.dtype}, {executor.info.device}"), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.bench growth", description=__doc__.split("\n")[0])
    parser.add_argument("--curves", default=",".join(AXES))
    parser.add_argument("--steps", type=int, default=20, help="decode steps a point")
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    return parser


def decode_step(executor: Any, tokenizer: Any, requests: int, length: int, knobs: dict[str, Any], steps: int) -> float:
    """Median seconds of a step in which ``requests`` requests of about ``length`` tokens decode."""
    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.sampling_params import SamplingParams
    config = EngineConfig().replaced({**knobs, "max_batch_tokens": 512, "max_requests_per_batch": requests, "safety_margin": 0.0})
    engine = Engine(executor, config, tokenizer=tokenizer)
    for i in range(requests):
        tokens = [(37 * i + 11 * j) % 1000 + 100 for j in range(length)]
        engine.submit(tokens, SamplingParams(max_new_tokens=steps + 4, ignore_eos=True))
    while any(request.num_output_tokens < 2 for request in engine.requests.values()):
        engine.step()
        engine.take_events()
    times = []
    for _ in range(steps - 2):
        begin = time.perf_counter()
        engine.step()
        engine.take_events()
        times.append(time.perf_counter() - begin)
        if any(request.ended for request in engine.requests.values()):
            times.pop()         # somebody was served earlier than the last one: the batch is no longer full
            break
    return statistics.median(times)


# -- drawing ---------------------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 330, 250, 52, 12, 34, 46


def draw(curves: dict[str, list[tuple[int, float, float]]], subtitle: str) -> str:
    """The curves side by side as SVG: x in powers, y from zero."""
    total = WIDTH * len(curves)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT + 24}" font-family="sans-serif" font-size="11" role="img">',
             f"<title>Output tokens per second: {subtitle}</title>", f'<rect width="{total}" height="{HEIGHT + 24}" fill="#fff"/>',
             f'<text x="8" y="{HEIGHT + 16}" fill="#555">{subtitle}; median of steady decode steps</text>']
    for index, (name, points) in enumerate(curves.items()):
        parts += [f'<g transform="translate({index * WIDTH} 0)">', *_panel(AXES[name], points), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(label: str, points: list[tuple[int, float, float]]) -> list[str]:
    highest = _round_up(max(speed for _, speed, _ in points))
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(i: int, speed: float) -> tuple[float, float]:
        return LEFT + across * i / max(1, len(points) - 1), TOP + down * (1 - speed / highest)
    out = [f'<text x="{LEFT}" y="20" fill="#222" font-size="12">tokens per second</text>',
           f'<text x="{LEFT + across / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#222">{label}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        _, y = place(0, highest * share)
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{highest * share:g}</text>']
    for i, (x, _, _) in enumerate(points):
        out.append(f'<text x="{place(i, 0)[0]:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="#555">{_short(x)}</text>')
    where = [place(i, speed) for i, (_, speed, _) in enumerate(points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
    out.append(f'<polyline points="{path}" fill="none" stroke="#0072b2" stroke-width="2"/>')
    out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0072b2"/>' for x, y in where]
    return out


def _round_up(value: float) -> float:
    """The next 1, 2, 4 or 8 times a power of ten: an axis that quarters well."""
    power = 10 ** (len(str(int(value))) - 1)
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)


def _short(x: int) -> str:
    return f"{x // 1024}k" if x >= 1024 else str(x)
