"""The stream is usable without the page: a terminal tells the life of requests, or passes the lines of JSON on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from engine.state import apply_event, empty_state
from tests.server.helpers import PATIENCE, raw, serving, until
from tests.server.page import ROOT


async def tail(url: str, *options: str, environment: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "engine.tail",
        url,
        *options,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def watched_run(*options: str) -> tuple[list[str], dict]:
    async with serving(token="t") as (server, url), raw(url) as client:
        await client.ok("hello", token="t")
        process = await tail(url, "--token-env", "TAIL_TOKEN", *options, environment={"TAIL_TOKEN": "t"})
        await until(lambda: server.manager.main.watchers == 1, "the tail")
        await client.ok("submit", prompt="tell the story of one request " * 3, params={"max_new_tokens": 4})
        await until(lambda: not server.manager.main.visitor_of, "the end")
        state = await asyncio.wrap_future(server.manager.call(server.manager.main.engine.snapshot))
        seq, lines = state["seq"], []
        while not lines or seq not in (int(lines[-1].split()[0]) if lines[-1][0] != "{" else json.loads(lines[-1])["seq"],):
            lines.append((await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().rstrip("\n"))
        process.terminate()
        await process.wait()
        return lines, json.loads(json.dumps(state["state"]))


async def test_the_tail_tells_the_life_of_a_request_in_sentences():
    lines, _ = await watched_run()
    text = "\n".join(lines)
    for part in (
        "joined room main",
        "r1 arrives",
        "r1 is admitted",
        "r1 prefill 0–",
        "has its whole prompt in the cache",
        "r1 decode",
        "r1 says",
        "r1 finishes (length reached)",
    ):
        assert part in text, text


async def test_lines_of_json_reduce_to_the_engines_state():
    lines, state = await watched_run("--json")
    mirror = empty_state()
    for line in lines:
        apply_event(mirror, json.loads(line))
    assert mirror == state


def test_no_engine_is_one_sentence_and_exit_code_one():
    done = subprocess.run(
        [sys.executable, "-m", "engine.tail", "ws://127.0.0.1:9"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1 and "No engine answers at ws://127.0.0.1:9" in done.stderr and "Traceback" not in done.stderr


def test_client_and_tail_need_neither_torch_nor_gradio():
    code = (
        "import sys, engine.tail, engine.client, engine.protocol, engine.history, viz.hub, viz.viewer, viz.routes_openai;"
        "sys.exit(bool({'torch', 'transformers', 'gradio'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=240, check=False).returncode == 0


def test_bad_options_of_the_engine_are_sentences():
    for options, part in (
        (["--config", '{"block_size": 1}'], "block_size must lie"),
        (["--config", "no json"], "--config"),
        (["--limits", '{"max_rooms": -1}'], "max_rooms"),
        (["--token-env", "SURELY_NOT_SET"], "SURELY_NOT_SET"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "engine", "--port", "0", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 2 and part in done.stderr and "Traceback" not in done.stderr
