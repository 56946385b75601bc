"""What being watched costs the engine: events on against off, hundreds of viewers against none, one viewer that stops reading.

Events: two engines, one with events and one without, take steps in turn; the cost is the median difference of a pair.
Viewers: the page process and an engine on a simulated device, whose own work is next to nothing, at a fixed pace; the cost is the
processor time of the engine's process per step, with viewers minus without, as a share of the real model's step. JSON: ``events``,
``viewers``, ``stalled``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine.bench.table import print_table
from engine.errors import CommandRefused

ROOT = Path(__file__).resolve().parents[2]
PACE = 20.0
REQUESTS = 32
CONFIG = {"block_size": 16, "num_blocks": 1024, "max_batch_tokens": 256, "max_requests_per_batch": REQUESTS}
TRAFFIC = {"num_requests": 20_000, "arrivals": {"kind": "closed", "users": REQUESTS}, "prompt_length": {"kind": "uniform", "low": 24, "high": 64},
           "output_length": {"kind": "uniform", "low": 40, "high": 90}}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.watch:
        asyncio.run(_watch(options.watch, options.viewers, options.stall))
        return 0
    report: dict[str, Any] = {}
    step = None
    if "events" in options.parts.split(","):
        report["events"] = events_cost(options.model, options.steps)
        step = report["events"]["step_ms"]
    if "viewers" in options.parts.split(","):
        if not Path("/proc/self/stat").exists():
            raise CommandRefused("needs_proc", "The cost of viewers is read from /proc, which this system does not have; use --parts events.")
        report |= asyncio.run(viewers_cost(options.viewers, options.seconds, options.rounds, step))
    _print(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.bench observe", description=__doc__.split("\n")[0])
    parser.add_argument("--parts", default="events,viewers")
    parser.add_argument("--viewers", type=int, default=300)
    parser.add_argument("--steps", type=int, default=150, help="pairs of steps for the cost of events")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of one window with or without viewers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--watch", metavar="URL", help=argparse.SUPPRESS)        # the viewers themselves, in a process of their own
    parser.add_argument("--stall", action="store_true", help=argparse.SUPPRESS)
    return parser


# -- events ----------------------------------------------------------------------------------------------------------------------------


def events_cost(model: str | None, steps: int) -> dict[str, float]:
    """Milliseconds of the model's step at 32 requests without events, what events add, and the size and encoding time of one.

    What events add is measured on simulated devices, where a step is nothing but the engine's own work: beside the model's
    thirty milliseconds, and their spread, it would drown.
    """
    from engine.bench.room import open_executors
    from engine.protocol import encode
    new_executor, tokenizer = open_executors("model", model, "bfloat16")
    new_simulated, _ = open_executors("simulated:h100", "llama-8b")
    real = _decoding_engine(new_executor(), tokenizer, False, steps)
    off = statistics.median(_timed_step(real)[0] for _ in range(steps))
    engines = {record: _decoding_engine(new_simulated(), tokenizer, record, steps) for record in (True, False)}
    extra, sizes, encoding = [], [], []
    for turn in range(steps):
        taken = {record: _timed_step(engines[record]) for record in ((True, False) if turn % 2 else (False, True))}
        extra.append(taken[True][0] - taken[False][0])
        begin = time.perf_counter()
        text = encode(taken[True][1])
        encoding.append(time.perf_counter() - begin)
        sizes.append(len(text))
    return {"requests": REQUESTS, "step_ms": off * 1e3, "extra_ms": statistics.median(extra) * 1e3, "share": statistics.median(extra) / off,
            "bytes_per_step": statistics.median(sizes), "encode_ms": statistics.median(encoding) * 1e3}


def _decoding_engine(executor: Any, tokenizer: Any, record: bool, steps: int) -> Any:
    """An engine that has 32 requests past their prompts, with ``steps`` tokens to go."""
    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.sampling_params import SamplingParams
    engine = Engine(executor, EngineConfig().replaced(CONFIG), tokenizer=tokenizer, record=record)
    prompt = tokenizer("The history of the city begins in the third century, when a bridge was built there.").input_ids
    for i in range(REQUESTS):
        engine.submit([*prompt, 300 + i], SamplingParams(max_new_tokens=steps + 40, ignore_eos=True))
    for _ in range(10):
        _timed_step(engine)
    return engine


def _timed_step(engine: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    event = engine.step()
    engine.take_events()
    return time.perf_counter() - begin, event


# -- viewers ---------------------------------------------------------------------------------------------------------------------------


async def viewers_cost(count: int, seconds: float, rounds: int, step_ms: float | None) -> dict[str, Any]:
    """Processor time of engine and page process per step, without viewers, with ``count``, and with one that stops reading."""
    with _page() as (url, page, engine):
        socket = "ws" + url.removeprefix("http") + "ws"
        probe = await _Probe.open(socket, PACE)
        rows: dict[str, list[dict[str, float]]] = {"none": [], "viewers": [], "stalled": []}
        for _ in range(rounds):
            for kind, taken in rows.items():
                watchers = None
                if kind != "none":
                    watchers = _start_watchers(socket, 1 if kind == "stalled" else count, kind == "stalled")
                    await asyncio.to_thread(watchers.stdout.readline)
                taken.append(await probe.window(seconds, engine, page))
                if watchers:
                    watchers.kill()
                    watchers.wait()
                    await asyncio.sleep(1.0)
        await probe.close()

    def middle(kind: str, field: str) -> float:
        return statistics.median(row[field] for row in rows[kind])
    result: dict[str, Any] = {}
    for kind in ("viewers", "stalled"):
        extra = middle(kind, "engine_ms") - middle("none", "engine_ms")
        result[kind] = {
            "count": count if kind == "viewers" else 1, "pace": PACE, "engine_ms_per_step": middle(kind, "engine_ms"),
            "engine_ms_per_step_alone": middle("none", "engine_ms"), "extra_ms": extra, "page_ms_per_step": middle(kind, "page_ms"),
            "steps_per_second": middle(kind, "rate"), "steps_per_second_alone": middle("none", "rate"),
            "share_of_model_step": extra / step_ms if step_ms else None}
    return result


@contextlib.contextmanager
def _page():
    """(address, pid of the page process, pid of its engine) of a page over a simulated device."""
    process = subprocess.Popen(
        [sys.executable, "app.py", "--host", "127.0.0.1", "--port", "0", "--device", "simulated:h100", "--model", "llama-8b", "--config",
         json.dumps(CONFIG)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = process.stdout.readline().split()[1]
        for _ in range(600):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if children:
                break
            time.sleep(0.1)
        else:
            raise CommandRefused("no_engine", "The page process did not start its engine within a minute.")
        yield url, process.pid, int(children[0])
    finally:
        process.terminate()
        process.wait(20)


def _start_watchers(url: str, count: int, stall: bool) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "engine.bench", "observe", "--watch", url, "--viewers", str(count), *(["--stall"] if stall else [])],
                            cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def _watch(url: str, count: int, stall: bool) -> None:
    """``count`` viewers of the main room that read everything, or (``stall``) nothing. Says "watching" when all are there."""
    from websockets.asyncio.client import connect
    sockets = []
    for _ in range(count):
        socket = await connect(url, max_size=None, proxy=None, compression=None, ping_interval=None, max_queue=1 if stall else 64)
        await socket.send('{"id":1,"cmd":"subscribe","room":"main"}')
        sockets.append(socket)
        if stall:
            socket.transport.pause_reading()

    async def read(socket) -> None:
        async for _ in socket:
            pass
    print("watching", flush=True)
    await asyncio.gather(*(asyncio.sleep(3600) if stall else read(socket) for socket in sockets))


class _Probe:
    """The one viewer that is always there: starts the traffic and counts steps."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._step = 0
        self._done: set[int] = set()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, url: str, pace: float) -> _Probe:
        from websockets.asyncio.client import connect
        socket = await connect(url, max_size=None, proxy=None, compression=None, ping_interval=None)
        probe = cls(socket)
        deadline = time.monotonic() + 90
        for number, command in enumerate(({"cmd": "subscribe"}, {"cmd": "pace", "steps_per_second": pace}, {"cmd": "workload", "workload": TRAFFIC})):
            while number not in probe._done:                # refused while the engine is still starting
                await socket.send(json.dumps({"id": number, "room": "main", **command}))
                await asyncio.sleep(0.5)
                if time.monotonic() > deadline:
                    raise CommandRefused("no_engine", f"The engine did not take the command {command['cmd']} within 90 seconds.")
        while probe._step < 20:
            await asyncio.sleep(0.1)
        return probe

    async def window(self, seconds: float, engine: int, page: int) -> dict[str, float]:
        step, busy, busy_page, begin = self._step, _processor_seconds(engine), _processor_seconds(page), time.monotonic()
        await asyncio.sleep(seconds)
        steps = self._step - step
        if not steps:
            raise CommandRefused("no_steps", "The engine took no step while it was measured.")
        return {"engine_ms": (_processor_seconds(engine) - busy) / steps * 1e3, "page_ms": (_processor_seconds(page) - busy_page) / steps * 1e3,
                "rate": steps / (time.monotonic() - begin)}

    async def close(self) -> None:
        self._reader.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if message["type"] == "ack":
                self._done.add(message["id"])
            elif message["type"] == "step":
                self._step = message["step"]


def _processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _print(report: dict[str, Any]) -> None:
    rows = []
    if events := report.get("events"):
        rows += [["a step at 32 requests, no events", f"{events['step_ms']:.2f} ms", ""],
                 ["events add", f"{events['extra_ms']:.3f} ms", f"{events['share']:.2%}"],
                 ["one event", f"{events['bytes_per_step']:,.0f} bytes", f"encoded in {events['encode_ms']:.3f} ms"]]
    for kind, words in (("viewers", "viewers"), ("stalled", "viewer that reads nothing")):
        if part := report.get(kind):
            share = f"{part['share_of_model_step']:.2%} of a model step" if part["share_of_model_step"] is not None else ""
            rates = f"{part['steps_per_second']:.2f} ({part['steps_per_second_alone']:.2f})"
            rows += [[f"{part['count']} {words}: engine process", f"{part['extra_ms']:+.3f} ms/step", share],
                     ["   steps per second (without)", rates, f"page {part['page_ms_per_step']:.1f} ms/step"]]
    print_table(["observation", "cost", ""], rows)
