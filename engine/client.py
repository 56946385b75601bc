"""A small asyncio client of the engine's websocket: commands as awaitables, rooms as states that keep themselves true.

Imports no torch. Used by the page process, the terminal tail, the lessons' checker and the tests::

    async with EngineClient("ws://127.0.0.1:8765") as client:
        await client.subscribe("main")
        result = await client.command("submit", prompt="Hello", params={"max_new_tokens": 8})
        async for event in client.events("main"):
            print(event["type"], client.state("main")["step"])
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from engine import protocol
from engine.errors import CommandRefused
from engine.state import SequenceGap, apply_event, empty_state

#: Events kept for a consumer that lags behind; past it, the consumer gets the newest snapshot instead.
MAX_BACKLOG = 10_000
#: Snapshots of a large room can be long; a client trusts the engine it connects to.
MAX_MESSAGE_BYTES = 256 * 2**20


class ConnectionLost(ConnectionError):
    """The engine is gone, or was never there; the message says where it was looked for."""


class WatchedRoom:
    """What this client knows of one room."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = empty_state()
        self.life = ""
        self.valid = False  # a snapshot has come and no event is missing since
        self.backlogs: set[Backlog] = set()


class Backlog:
    """The events that one consumer has not taken yet."""

    def __init__(self) -> None:
        self.events: deque[dict[str, Any]] = deque()
        self.news = asyncio.Event()
        self.overrun = False

    def put(self, event: dict[str, Any]) -> None:
        if len(self.events) >= MAX_BACKLOG:
            self.events.clear()
            self.overrun = True
        if not self.overrun:
            self.events.append(event)
        self.news.set()


class EngineClient:
    """One connection. ``on_event(room, event, text)`` is called for each valid message of a subscribed room, after the state
    has taken it; ``text`` is the frame as it came, so that a relay need not encode it again."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        on_event: Callable[[str, dict[str, Any], str], None] | None = None,
        on_other: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.url = url
        self.token = token
        self.on_event, self.on_other = on_event, on_other
        self.rooms: dict[str, WatchedRoom] = {}
        self.hello: dict[str, Any] = {}
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task | None = None
        self._waiting: dict[int, asyncio.Future] = {}
        self._numbers = itertools.count(1)
        self.closed = asyncio.Event()

    async def __aenter__(self) -> EngineClient:
        await self.connect()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the connection and say hello. Raises :class:`ConnectionLost` or :class:`CommandRefused` (wrong token)."""
        try:
            self._socket = await connect(
                self.url,
                max_size=MAX_MESSAGE_BYTES,
                max_queue=256,
                compression=None,
                proxy=None,
                ping_interval=20,
                ping_timeout=20,
                close_timeout=2,
            )
        except (OSError, InvalidHandshake, TimeoutError) as problem:
            raise ConnectionLost(f"No engine answers at {self.url}: {problem}") from None
        self.closed.clear()
        self._reader = asyncio.create_task(self._read_forever())
        self.hello = await self.command("hello", **({"token": self.token} if self.token else {}))

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)

    # --- commands -----------------------------------------------------------------------------------------------------------

    async def command(self, name: str, /, *, on_behalf: dict[str, Any] | None = None, **fields: Any) -> Any:
        """Send a command and wait for its result. Raises :class:`CommandRefused` with the engine's code and sentence, or
        :class:`ConnectionLost`."""
        if self._socket is None or self.closed.is_set():
            raise ConnectionLost(f"The connection to {self.url} is closed.")
        number = next(self._numbers)
        future: asyncio.Future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        message = {"id": number, "cmd": name, **fields}
        if on_behalf is not None:
            message["on_behalf"] = on_behalf
        try:
            await self._socket.send(protocol.encode(message))
            return await future
        except ConnectionClosed:
            raise ConnectionLost(f"The connection to {self.url} was lost.") from None
        finally:
            self._waiting.pop(number, None)

    async def subscribe(self, room: str = "main") -> dict[str, Any]:
        """Watch a room; returns once its state is here."""
        watched = self.rooms.setdefault(room, WatchedRoom())
        fields = {"from_seq": watched.state["seq"], "life": watched.life} if watched.valid else {}
        result = await self.command("subscribe", room=room, **fields)
        while not watched.valid and not self.closed.is_set():
            await asyncio.sleep(0)
        return result

    async def unsubscribe(self, room: str) -> None:
        self.rooms.pop(room, None)
        await self.command("unsubscribe", room=room)

    def state(self, room: str = "main") -> dict[str, Any]:
        """The room's state as of the last event. It changes in place; copy what must stay."""
        return self.rooms[room].state

    async def events(self, room: str = "main") -> AsyncIterator[dict[str, Any]]:
        """Every event of a subscribed room from now on, in order and without gaps; ends when the connection does.

        After a gap (or when this consumer was too slow) the next event is a ``snapshot``.
        """
        watched, backlog = self.rooms[room], Backlog()
        watched.backlogs.add(backlog)
        try:
            while True:
                while backlog.events:
                    yield backlog.events.popleft()
                if backlog.overrun:
                    backlog.overrun = False
                    yield {
                        "v": protocol.VERSION,
                        "type": "snapshot",
                        "room": room,
                        "seq": watched.state["seq"],
                        "state": protocol.decode(protocol.encode(watched.state)),
                    }
                    continue
                if self.closed.is_set():
                    return
                backlog.news.clear()
                await backlog.news.wait()
        finally:
            watched.backlogs.discard(backlog)

    # --- frames ---------------------------------------------------------------------------------------------------------------

    async def _read_forever(self) -> None:
        try:
            async for text in self._socket:
                self._take(text)
        except ConnectionClosed:
            pass
        finally:
            self.closed.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionLost(f"The connection to {self.url} was lost before the engine answered."))
            for watched in self.rooms.values():
                for backlog in watched.backlogs:
                    backlog.news.set()

    def _take(self, text: str) -> None:
        message = protocol.decode(text)
        kind = message.get("type")
        if kind in ("ack", "error"):
            future = self._waiting.get(message["id"])
            if future is not None and not future.done():
                if kind == "ack":
                    future.set_result(message["result"])
                else:
                    future.set_exception(CommandRefused(message["code"], message["message"]))
        elif message.get("room") in self.rooms and "seq" in message:
            self._take_event(self.rooms[message["room"]], message, text)
        elif self.on_other is not None:
            self.on_other(message)

    def _take_event(self, watched: WatchedRoom, message: dict[str, Any], text: str) -> None:
        if message["type"] == "snapshot":
            watched.valid, watched.life = True, message.get("life", "")
        elif not watched.valid:
            return  # after a gap deltas have nothing to stand on; the snapshot is on its way
        elif message["seq"] <= watched.state["seq"]:
            return  # already contained in the snapshot
        try:
            apply_event(watched.state, message)
        except SequenceGap:
            watched.valid = False
            self._heal(message["room"])
            return
        for backlog in watched.backlogs:
            backlog.put(message)
        if self.on_event is not None:
            self.on_event(message["room"], message, text)

    def _heal(self, room: str) -> None:
        async def ask() -> None:
            with contextlib.suppress(CommandRefused, ConnectionLost):
                snapshot = await self.command("snapshot", room=room)
                if room in self.rooms and not self.rooms[room].valid:
                    self._take_event(self.rooms[room], snapshot, protocol.encode(snapshot))

        self._healing = asyncio.create_task(ask())
