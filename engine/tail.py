"""``python -m engine.tail ws://…``: the life of requests in the terminal, or ``--json`` for lines of JSON."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from engine.client import ConnectionLost, EngineClient
from engine.errors import BatchscopeError
from engine.narrate import sentences


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engine.tail", description="Print what an engine does, as it does it.")
    parser.add_argument("url", help="ws://127.0.0.1:8765, or wss://…")
    parser.add_argument("--room", default="main")
    parser.add_argument("--json", action="store_true", help="every message as one line of JSON, as it came")
    parser.add_argument("--token-env", metavar="NAME", help="environment variable that holds the engine's token")
    parser.add_argument("--max-events", type=int, default=0, help="end after so many events (0: never)")
    return parser.parse_args(arguments)


async def follow(options: argparse.Namespace) -> int:
    left = options.max_events or -1
    finished = asyncio.Event()

    def show(room: str, event: dict, text: str) -> None:
        nonlocal left
        if left == 0:
            return
        if options.json:
            print(text)
        else:
            for sentence in sentences(event):
                print(f"{event['seq']:>7}  {sentence}")
        sys.stdout.flush()
        left -= 1
        if left == 0:
            finished.set()

    token = os.environ.get(options.token_env) if options.token_env else None
    async with EngineClient(options.url, token=token, on_event=show) as client:
        await client.subscribe(options.room)
        ends = [asyncio.create_task(finished.wait()), asyncio.create_task(client.closed.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
        if client.closed.is_set():
            raise ConnectionLost("The engine closed the connection.")
    return 0


def main(arguments: list[str] | None = None) -> int:
    try:
        return asyncio.run(follow(parse(arguments)))
    except (ConnectionLost, BatchscopeError) as problem:
        print(problem, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
