"""More than ten thousand malformed frames over both websockets and the HTTP routes: everybody else is served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
from collections import Counter

import httpx
from websockets.exceptions import ConnectionClosed

from engine import protocol
from engine.protocol import COMMANDS
from tests.server.helpers import assert_sentence, raw, serving
from tests.server.page import browser

FRAMES = 6000
JUNK = [
    None,
    True,
    False,
    0,
    -1,
    1e308,
    2**70,
    "",
    "x",
    "\x00",
    "main",
    "r1",
    "🧑‍🚀",
    "a" * 3000,
    [],
    [[]],
    {},
    {"a": {}},
    [None],
    {"max_new_tokens": "x"},
    {"block_size": None},
    {"num_blocks": 2**40},
    ["main"],
    -(2**63),
    0.1,
    "<img src=x onerror=alert(1)>",
    {"__class__": 1},
    [1, 2, 3],
    {"prompt": 1},
]


def malformed(dice: random.Random) -> str | bytes:
    """A frame that is not quite a command: cut, spliced, mistyped, too deep, or of the wrong kind."""
    kind = dice.randrange(9)
    name = dice.choice(list(COMMANDS))
    fields = {key.rstrip("!"): dice.choice(JUNK) for key in COMMANDS[name].fields}
    command = json.dumps(
        {"id": dice.choice(JUNK), "cmd": name, **fields, **({dice.choice("abcxyz"): 1} if dice.random() < 0.3 else {})}
    )
    if kind == 0:
        return bytes(dice.randrange(256) for _ in range(dice.randrange(1, 60)))
    if kind == 1:
        return command[: dice.randrange(len(command))]
    if kind == 2:
        place = dice.randrange(len(command))
        return command[:place] + chr(dice.randrange(32, 0x2FF)) + command[place + 1 :]
    if kind == 3:
        return "[" * dice.randrange(1, 3000)
    if kind == 4:
        return json.dumps(dice.choice(JUNK))
    if kind == 5:
        return json.dumps({"id": 1, "cmd": dice.choice(JUNK)})
    if kind == 6:
        return "".join(chr(dice.randrange(1, 0xD7FF)) for _ in range(dice.randrange(1, 80)))
    if kind == 7:
        return json.dumps({"id": 1, "cmd": name, "on_behalf": dice.choice(JUNK), **fields})
    return command


async def throw(open_connection, count: int, seed: int) -> Counter:
    """Throw frames; reconnect whenever the server has had enough. Every answer must be well formed."""
    dice, codes, thrown = random.Random(seed), Counter(), 0
    while thrown < count:
        async with open_connection() as client:
            try:
                for _ in range(150):
                    frame = malformed(dice)
                    thrown += 1
                    await client.send(frame)
                await client.send('{"id": "end", "cmd": "rooms"}')
                while True:
                    answer = await client.receive()
                    if answer["type"] == "error":
                        codes[answer["code"]] += 1
                        assert_sentence(answer["message"])
                    if answer.get("id") == "end":
                        break
            except ConnectionClosed as closed:
                codes[f"closed {closed.rcvd.code if closed.rcvd else None}"] += 1
    return codes


def test_the_parser_refuses_or_understands_every_frame():
    dice, seen = random.Random(1), Counter()
    for _ in range(20_000):
        try:
            protocol.parse_command(malformed(dice))
            seen["command"] += 1
        except protocol.FrameRefused as problem:
            seen[problem.code] += 1
            assert_sentence(problem.message)
    assert {
        "bad_json",
        "not_an_object",
        "unknown_command",
        "unknown_field",
        "bad_field",
        "bad_id",
        "binary_frame",
        "missing_field",
    } <= set(seen)


async def test_the_engine_survives_malformed_frames_from_host_and_viewer():
    limits = {"messages_per_second": 1e6, "message_burst": 10**6, "max_rooms": 3}
    async with serving(token="t", limits=limits) as (server, url), raw(url) as bystander:

        def as_viewer():
            return raw(url)

        @contextlib.asynccontextmanager
        async def as_host():
            async with raw(url) as client:
                await client.ok("hello", token="t")
                yield client

        await bystander.ok("subscribe")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        codes = await throw(as_viewer, FRAMES, 2) + await throw(as_host, FRAMES, 3)
        assert sum(codes.values()) > FRAMES
        assert not codes["internal_error"], codes
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 200_000, f"memory grew by {grown} KiB"
        assert await bystander.ok("rooms")
        await asyncio.wrap_future(server.manager.call(server.manager.main.engine.check_integrity))


async def test_the_page_survives_malformed_frames_and_requests(page):
    codes = await throw(lambda: browser(page, subscribe=None), 1500, 5)
    assert not codes["internal_error"], codes
    dice = random.Random(7)
    paths = ["/v1/completions", "/v1/chat/completions", "/api/rooms/main/history?from=", "/viz/", "/api/rooms/", "/v1/models/"]
    async with httpx.AsyncClient(base_url=page.url, timeout=30) as client:
        for _ in range(150):
            path = dice.choice(paths)
            body = malformed(dice)
            if "completions" in path:
                answer = await client.post(path, content=body if isinstance(body, bytes) else body.encode(errors="replace"))
            else:
                answer = await client.get(path + "".join(f"%{dice.randrange(256):02x}" for _ in range(12)))
            assert answer.status_code in (400, 401, 404, 405, 413, 415, 422, 429), (path, answer.status_code, answer.text[:200])
    async with browser(page) as viewer:
        await viewer.ok("submit", prompt="still here", params={"max_new_tokens": 2})
    assert page.health()["ready"] and page.health()["engine"]["restarts"] == 0
