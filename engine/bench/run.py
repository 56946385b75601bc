"""Run a workload under one or several configurations and compare latency, throughput and waste.

    python -m engine.bench run --workload chat --set max_batch_tokens=64,256 --limit-seconds ttft=0.5,tpot=0.1
    python -m engine.bench run --trace AzureLLMInferenceTrace_conv.csv --device simulated:h100:8 --model llama-70b --json run.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

from engine.bench.room import open_executors, run_card
from engine.bench.table import number, print_table, seconds, share
from engine.config import EngineConfig
from engine.errors import CommandRefused, ConfigRefused
from engine.metrics import LIMITS, RunMeter
from engine.presets import PRESETS, preset_workload
from engine.workload import Workload, WorkloadDriver, load_trace

MAX_CONFIGS = 64


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    workload = choose_workload(options)
    preset = PRESETS.get(options.workload or "")
    device = options.device or (preset.device if preset else "model")
    model = options.model or (preset.model if preset and device == preset.device else None)
    configs = cross_product(preset.config if preset else {}, options.set)
    limits = parse_limits(options.limit_seconds)
    make_executor, tokenizer = open_executors(device, model, options.dtype, workload.seed)
    results = []
    for changes, config in configs:
        executor = make_executor()
        results.append({"changes": changes, "config": config.to_dict(),
                        **run_once(executor, config, workload, tokenizer, limits, options.max_steps)})
    card = run_card(executor, workload.seed, workload=workload.to_dict(), started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    print_results(card, workload, results)
    if options.json:
        Path(options.json).write_text(json.dumps({"card": card, "runs": results}, indent=1), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.bench run", description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--workload", metavar="NAME|FILE", help=f"a preset ({', '.join(PRESETS)}) or a JSON file; default chat")
    source.add_argument("--trace", metavar="FILE", help="Azure LLM inference trace (.csv) or ShareGPT conversations (.json)")
    parser.add_argument("--requests", type=int, metavar="N", help="how many requests (the first N of a trace)")
    parser.add_argument("--rate", type=float, metavar="R", help="Poisson arrivals, R a second, instead of the workload's own")
    parser.add_argument("--users", type=int, metavar="N", help="a closed loop of N users instead of the workload's own arrivals")
    parser.add_argument("--speed", type=float, metavar="F", help="make arrivals F times as dense")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--device", help="model, or simulated:h100, simulated:h100:8, …; default: the preset's own, else model")
    parser.add_argument("--model", help="Hub name or path; for a simulated device a catalog name such as llama-70b")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16; the real model only")
    parser.add_argument("--set", action="append", default=[], metavar="KNOB=V[,V…]", help="a knob, or several values to compare; repeatable")
    parser.add_argument("--limit-seconds", default="", metavar="NAME=S[,…]", help=f"limits for the goodput: {', '.join(LIMITS)}")
    parser.add_argument("--max-steps", type=int, metavar="N", help="stop after N steps")
    parser.add_argument("--json", metavar="FILE", help="write the results and the run card")
    return parser


def choose_workload(options: argparse.Namespace) -> Workload:
    """From a trace, a preset or a file, with the changes of the command line. Raises :class:`CommandRefused`."""
    changes: dict[str, Any] = {}
    if options.rate is not None:
        changes["arrivals"] = {"kind": "poisson", "rate": options.rate}
    if options.users is not None:
        if changes:
            raise CommandRefused("bad_workload", "Choose --rate or --users, not both.")
        changes["arrivals"] = {"kind": "closed", "users": options.users}
    if options.trace:
        workload = load_trace(options.trace, limit=options.requests or 1000, arrivals=changes.get("arrivals"))
        changes = {}
    else:
        name = options.workload or "chat"
        workload = preset_workload(name) if name in PRESETS else _from_file(name)
        if options.requests is not None:
            changes["num_requests"] = options.requests
    for name in ("seed", "speed"):
        if getattr(options, name) is not None:
            changes[name] = getattr(options, name)
    return Workload.from_dict({**workload.to_dict(), **changes}) if changes else workload


def _from_file(name: str) -> Workload:
    try:
        return Workload.from_dict(json.loads(Path(name).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        raise CommandRefused("bad_workload", f"There is no preset and no readable file {name[:80]!r}; presets are {', '.join(PRESETS)}.") from None
    except (ValueError, RecursionError) as problem:
        raise CommandRefused("bad_workload", f"{name[:80]} is not JSON: {str(problem)[:100]}.") from None


def cross_product(base: dict[str, Any], settings: list[str]) -> list[tuple[dict[str, Any], EngineConfig]]:
    """Every combination of the values of ``KNOB=V,V``. Raises :class:`ConfigRefused` for one that cannot be."""
    names, choices = [], []
    for setting in settings:
        name, separator, values = setting.partition("=")
        if not separator or not values:
            raise ConfigRefused("config_type", f"--set takes KNOB=VALUE[,VALUE…], not {setting[:60]!r}.")
        names.append(name.strip())
        choices.append([_value(text.strip()) for text in values.split(",")])
    combinations = list(itertools.product(*choices))
    if len(combinations) > MAX_CONFIGS:
        raise ConfigRefused("config_bounds", f"These settings make {len(combinations)} configurations; at most {MAX_CONFIGS} are compared at once.")
    made = []
    for combination in combinations:
        changes = dict(zip(names, combination))
        made.append((changes, EngineConfig.from_dict({**base, **changes})))
    return made


def _value(text: str) -> Any:
    """``none`` and ``auto`` stand for automatic; numbers and true/false as in JSON; anything else is a word."""
    if text.lower() in ("none", "auto"):
        return None
    try:
        return json.loads(text.lower())
    except ValueError:
        return text


def parse_limits(text: str) -> dict[str, float]:
    """``ttft=0.5,tpot=0.05`` → seconds by name. Raises :class:`CommandRefused`."""
    limits = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            limits[name.strip()] = float(value)
        except ValueError:
            limits[name.strip()] = float("nan")
        if name.strip() not in LIMITS or not limits[name.strip()] > 0:
            raise CommandRefused("bad_limit", f"--limit-seconds takes {', '.join(LIMITS)} with seconds above 0, not {part[:60]!r}.")
    return limits


def run_once(executor: Any, config: EngineConfig, workload: Workload, tokenizer: Any, limits: dict[str, float],
             max_steps: int | None = None) -> dict[str, Any]:
    """One run from an empty engine to the last answer: ``{report, refused, wall_seconds}``."""
    from engine.engine import Engine
    engine = Engine(executor, config, tokenizer=tokenizer, room="bench")
    driver, meter = WorkloadDriver(workload, engine, tokenizer), RunMeter()
    began = time.perf_counter()
    driver.run(meter.feed, max_steps)
    elapsed = time.perf_counter() - began
    engine.close()
    return {"report": meter.report(limits), "submitted": driver.submitted, "refused": len(driver.refused),
            "first_refusal": driver.refused[0] if driver.refused else None, "wall_seconds": elapsed}


def print_results(card: dict[str, Any], workload: Workload, results: list[dict[str, Any]]) -> None:
    label = "SIMULATED time on" if card["simulated"] else "on"
    print(f"{card['model']} ({card['dtype']}), {label} {card['device']}, backend {card['backend']}; workload {workload.name!r}, seed {workload.seed}\n")
    header = ["config", "done", "seconds", "out tok/s", "TTFT p50", "p99", "ITL p50", "p99", "TPOT p50", "e2e p50", "p99", "goodput",
              "budget", "padding", "cache", "prefix", "preempted"]
    rows = []
    for result in results:
        report = result["report"]
        rows.append([
            ", ".join(f"{name}={value}" for name, value in result["changes"].items()) or "as given",
            f"{report['requests'].get('finished', 0)}/{report['requests']['total']}", number(report["seconds"]), number(report["output_tok_s"]),
            *(seconds((report[name] or {}).get(rank)) for name, rank in (
                ("ttft", "p50"), ("ttft", "p99"), ("itl", "p50"), ("itl", "p99"), ("tpot", "p50"), ("e2e", "p50"), ("e2e", "p99"))),
            share(report["goodput"]["share"]) if report["goodput"] else "–",
            *(share(report[name]) for name in ("budget_use", "padding_share", "cache_use", "prefix_hit_rate")),
            str(report["preemptions"]["offloads"] + report["preemptions"]["soft_resets"])])
    print_table(header, rows)
    for result in results:
        if result["refused"]:
            print(f"\n{result['refused']} requests were refused, the first with: {result['first_refusal']}")
            break
