"""Record a room of a running engine: ``python -m viz.record ws://127.0.0.1:8765 OUT.jsonl.gz [--room main] [--scenario FILE]``.

Without a scenario it records what happens in the room until everything has ended or ``--steps`` are done. With one (JSON:
``{"title", "config", "device", "model", "workload", "submit": [fields of submit and at_step, …]}``) it opens a room of its own,
lets the requests arrive at their steps, runs it to the end, and saves the room's journal with it, so that the recording can be forked.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from engine.client import ConnectionLost, EngineClient
from engine.errors import BatchscopeError
from viz.recording import Recording, run_card, save_recording

PACKAGES = ("torch", "transformers")


async def record(url: str, *, room: str = "main", steps: int | None = None, scenario: dict[str, Any] | None = None,
                 token: str | None = None, timeout: float = 600.0) -> Recording:
    """Watch a room and return its recording. Raises :class:`ConnectionLost`, :class:`BatchscopeError` or :class:`TimeoutError`."""
    messages: list[dict[str, Any]] = []
    done = asyncio.Event()

    def on_event(of_room: str, event: dict[str, Any], _text: str) -> None:
        if of_room != room:
            return
        if event["type"] == "snapshot":
            messages.clear()             # what came before a gap cannot be replayed
        messages.append(json.loads(_text))
        state = client.rooms[room].state
        enough = steps is not None and sum(message["type"] == "step" for message in messages) >= steps
        ended = event["type"] == "step" and not state["queue"] and not state["active"] and state["engine"].get("status") != "paused"
        if enough or ended:
            done.set()

    client = EngineClient(url, token=token, on_event=on_event)
    async with client:
        if scenario is not None:
            room = (await client.command("create_room", title=scenario.get("title", ""), config=scenario.get("config", {}), paused=True,
                                         **{name: scenario[name] for name in ("device", "model") if name in scenario}))["room"]
        await client.subscribe(room)
        if scenario is not None:
            await _submit(client, room, scenario.get("submit", ()))
            if "workload" in scenario:
                await client.command("workload", room=room, workload=scenario["workload"])
            await client.command("resume", room=room)
        async with asyncio.timeout(timeout):
            await done.wait()
        journal = None
        if scenario is not None:
            journal = await client.command("journal", room=room)
            await client.command("close_room", room=room)
    first = messages[0]
    first.pop("life", None)
    started = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
    card = run_card(first, workload=(scenario or {}).get("workload"), versions=_versions(), started=started,
                    title=(scenario or {}).get("title", ""), journal=journal)
    return Recording(card, first, messages[1:])


async def _submit(client: EngineClient, room: str, submissions: Any) -> None:
    """Send each submission when the room has done its ``at_step`` steps (0 when it names none)."""
    for fields in sorted(submissions, key=lambda fields: fields.get("at_step", 0)):
        missing = fields.get("at_step", 0) - client.rooms[room].state["step"]
        if missing > 0:
            await client.command("step", room=room, count=missing)
            while client.rooms[room].state["step"] < fields["at_step"]:
                await asyncio.sleep(0.01)
        await client.command("submit", room=room, **{name: value for name, value in fields.items() if name != "at_step"})


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m viz.record", description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", help="websocket of the engine, e.g. ws://127.0.0.1:8765")
    parser.add_argument("out", help="file to write (.jsonl.gz)")
    parser.add_argument("--room", default="main")
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--scenario", help="JSON file with what to run in a room of its own")
    parser.add_argument("--token-env", metavar="NAME", help="environment variable with the engine's token")
    options = parser.parse_args(arguments)
    scenario = json.loads(Path(options.scenario).read_text(encoding="utf-8")) if options.scenario else None
    try:
        recording = asyncio.run(record(options.engine, room=options.room, steps=options.steps, scenario=scenario,
                                       token=os.environ.get(options.token_env) if options.token_env else None))
    except (BatchscopeError, ConnectionLost) as problem:
        print(problem, file=sys.stderr)
        return 1
    except TimeoutError:
        print("The run did not end in time; give --steps to record a part of it.", file=sys.stderr)
        return 1
    save_recording(options.out, recording)
    print(f"wrote {options.out}: {len(recording.events)} events, {Path(options.out).stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
