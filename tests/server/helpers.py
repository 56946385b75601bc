"""Engines on simulated devices behind a real websocket, raw connections, and executors that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from engine.config import EngineConfig
from engine.limits import Limits
from engine.provider import Provider
from engine.server import EngineServer

SIMULATED = "simulated:h100"
SMALL = {"block_size": 16, "num_blocks": 64, "max_batch_tokens": 32, "max_requests_per_batch": 8}
PATIENCE = 60.0


async def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition; a test that waits for ever should say for what."""
    deadline = asyncio.get_running_loop().time() + patience
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    *,
    limits: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    provider: Provider | None = None,
    **options: Any,
) -> AsyncIterator[tuple[EngineServer, str]]:
    """A server whose main room runs on a simulated device, and its address."""
    server = EngineServer(
        provider or Provider("llama-8b"),
        device=SIMULATED,
        config=EngineConfig.from_dict({**SMALL, **(config or {})}),
        limits=Limits().replaced(limits or {}),
        **options,
    )
    port = await server.start()
    try:
        await until(lambda: server.manager.main.engine is not None, "the main room's engine")
        yield server, f"ws://127.0.0.1:{port}"
    finally:
        await server.stop()


class Raw:
    """A websocket without any manners: sends what it is given and keeps what it gets."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.numbers = iter(range(1, 10**9))
        self.events: list[dict[str, Any]] = []

    async def send(self, frame: str | bytes) -> None:
        await self.socket.send(frame)

    async def receive(self) -> dict[str, Any]:
        return json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))

    async def answer(self, cmd: str, **fields: Any) -> dict[str, Any]:
        """Send a command and return its acknowledgement or error; events on the way are kept in ``events``."""
        number = next(self.numbers)
        await self.send(json.dumps({"id": number, "cmd": cmd, **fields}))
        while True:
            message = await self.receive()
            if message["type"] in ("ack", "error") and message["id"] == number:
                return message
            self.events.append(message)

    async def ok(self, cmd: str, **fields: Any) -> Any:
        answer = await self.answer(cmd, **fields)
        assert answer["type"] == "ack", answer
        return answer["result"]

    async def turns(self, count: int = 20) -> None:
        """Let the device thread go round so often: each answer comes from it, and between two of them it runs what is due."""
        for _ in range(count):
            await self.ok("rooms")

    async def refused(self, cmd: str, **fields: Any) -> str:
        """The code of the error; its message must be one sentence."""
        answer = await self.answer(cmd, **fields)
        assert answer["type"] == "error", answer
        assert_sentence(answer["message"])
        return answer["code"]


def assert_sentence(text: str) -> None:
    """An error is for people: a sentence that begins with a capital or a name and ends with a full stop."""
    assert len(text) > 15 and text.rstrip()[-1] in ".!?", text
    assert "Traceback" not in text and "\n" not in text, text


@contextlib.asynccontextmanager
async def raw(url: str, **options: Any) -> AsyncIterator[Raw]:
    async with connect(url, max_size=None, proxy=None, **options) as socket:
        yield Raw(socket)
