"""``python -m tests.server.load``: hundreds of viewers on one page process, and how late the slowest of them sees a step.

An engine on a simulated device runs a closed loop of requests at a fixed pace; a page process serves the viewers. A probe
connected to the engine itself tells when each event left it. Delivery time is the moment a viewer has the event minus the
moment the probe (or, if it was earlier, any viewer) had it. Everything, viewers included, shares this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from websockets.asyncio.client import connect

from tests.server.page import CONFIG, ROOT, Page

TOKEN = "load-test-token"
WORKLOAD = {
    "num_requests": 20_000,
    "arrivals": {"kind": "closed", "users": 12},
    "prompt_length": {"kind": "uniform", "low": 10, "high": 120},
    "output_length": {"kind": "uniform", "low": 20, "high": 80},
}


class Watch:
    """When each event was first seen anywhere, and every viewer's delay after that."""

    def __init__(self) -> None:
        self.first: dict[int, float] = {}
        self.seen: list[tuple[int, float]] = []
        self.bytes = self.snapshots = self.gaps = 0
        self.recording = False

    def note(self, text: str, moment: float) -> int | None:
        start = text.find('"seq":', 0, 120)
        if start < 0 or not text.startswith('{"v"'):
            return None
        seq = int(text[start + 6 : text.index(",", start + 6)])
        if moment < self.first.get(seq, moment + 1):
            self.first[seq] = moment
        return seq


async def viewer(url: str, watch: Watch, stop: asyncio.Event, opened: asyncio.Semaphore) -> None:
    async with opened:
        socket = await connect(url, max_size=None, proxy=None, compression=None, ping_interval=None)
        await socket.send('{"id":1,"cmd":"subscribe","room":"main"}')
    last = None
    with contextlib.suppress(Exception):
        async for text in socket:
            moment = time.monotonic()
            seq = watch.note(text, moment)
            if seq is None or not watch.recording:
                last = seq or last
                continue
            watch.seen.append((seq, moment))
            watch.bytes += len(text)
            if text.startswith('{"v":1,"type":"snapshot"'):
                watch.snapshots += 1
            elif last is not None and seq != last + 1:
                watch.gaps += 1
            last = seq
            if stop.is_set():
                break
    await socket.close()


async def probe(url: str, watch: Watch, stop: asyncio.Event, pace: float) -> None:
    async with connect(url, max_size=None, proxy=None, compression=None) as socket:
        for number, command in enumerate(
            (
                {"cmd": "hello", "token": TOKEN},
                {"cmd": "subscribe"},
                {"cmd": "pace", "steps_per_second": pace},
                {"cmd": "workload", "workload": WORKLOAD},
            )
        ):
            await socket.send(json.dumps({"id": number, **command}))
        async for text in socket:
            if '"type":"error"' in text[:20]:
                raise RuntimeError(text)
            watch.note(text, time.monotonic())
            if stop.is_set():
                return


def start_engine() -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "engine",
            "--port",
            "0",
            "--announce",
            "--end-with-parent",
            "--device",
            "simulated:h100",
            "--model",
            "llama-8b",
            "--token-env",
            "LOAD_TOKEN",
            "--config",
            json.dumps(CONFIG),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "LOAD_TOKEN": TOKEN},
        text=True,
    )
    return process, f"ws://127.0.0.1:{json.loads(process.stdout.readline())['port']}"


async def measure(viewers: int, pace: float, seconds: float) -> dict[str, Any]:
    """One run. The figures are those of the last ``seconds``, after everybody has connected."""
    engine, engine_url = start_engine()
    page = await asyncio.to_thread(
        Page, "--engine", engine_url, "--engine-token-env", "LOAD_TOKEN", environment={"LOAD_TOKEN": TOKEN}
    )
    watch, stop, opened = Watch(), asyncio.Event(), asyncio.Semaphore(20)
    try:
        await asyncio.to_thread(page.until_ready)
        tasks = [asyncio.create_task(probe(engine_url, watch, stop, pace))]
        tasks += [asyncio.create_task(viewer(page.ws, watch, stop, opened)) for _ in range(viewers)]
        await asyncio.to_thread(page.until, lambda health: health["page"]["viewers"] >= viewers, "all viewers", 120)
        await asyncio.sleep(3)
        processes = {"page": psutil.Process(page.process.pid), "engine": psutil.Process(engine.pid), "viewers": psutil.Process()}
        before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
        memory = {name: process.memory_info().rss for name, process in processes.items()}
        watch.recording, started = True, time.monotonic()
        await asyncio.sleep(seconds)
        watch.recording, spent = False, time.monotonic() - started
        cpu = {name: round((sum(process.cpu_times()[:2]) - before[name]) / spent, 3) for name, process in processes.items()}
        grown = {name: processes[name].memory_info().rss - memory[name] for name in ("page", "engine")}
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await asyncio.to_thread(page.stop)
        engine.terminate()
        engine.wait(20)
    delays = sorted(moment - watch.first[seq] for seq, moment in watch.seen)
    events = len({seq for seq, _ in watch.seen})
    return {
        "viewers": viewers,
        "pace": pace,
        "seconds": round(spent, 1),
        "events_per_second": round(events / spent, 1),
        "frames": len(delays),
        "frames_expected": events * viewers,
        "bytes_per_event": round(watch.bytes / max(1, len(delays))),
        "p50_ms": round(delays[len(delays) // 2] * 1e3, 1),
        "p99_ms": round(delays[len(delays) * 99 // 100] * 1e3, 1),
        "max_ms": round(delays[-1] * 1e3, 1),
        "snapshots": watch.snapshots,
        "gaps": watch.gaps,
        "cpu_cores": cpu,
        "memory_grown": grown,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.load", description=__doc__)
    parser.add_argument("--viewers", type=int, default=300)
    parser.add_argument("--pace", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(options.viewers, options.pace, options.seconds))
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
