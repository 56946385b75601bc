"""The engine's websocket server: connections on an event loop, rooms on the device thread, one ordered stream between.

Who may do what: with a token configured, a connection that shows it is trusted (host, may speak ``on_behalf`` of others) and
all others are viewers. Without a token, connections from this machine are trusted, because whoever can open them can read
the process anyway; browsers are kept out by the origin check, since any web page can make a browser connect to 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import threading
from collections import deque
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from engine import protocol
from engine.commands import Commands
from engine.config import EngineConfig
from engine.connection import MAX_BAD_TOKENS, Connection
from engine.errors import BatchscopeError, CommandRefused
from engine.limits import Limits
from engine.provider import Provider
from engine.room_manager import RoomManager
from engine.rooms import Room

log = logging.getLogger("batchscope.server")

#: Frames that cannot even be read are answered, but not for ever.
MAX_MALFORMED = 200


class EngineServer:
    """Serves one provider's rooms. :meth:`start` opens the port at once and loads the model in the background."""

    def __init__(
        self,
        provider: Provider,
        *,
        config: EngineConfig | None = None,
        device: str = "model",
        limits: Limits | None = None,
        token: str | None = None,
        origins: tuple[str, ...] = (),
        main_open: bool = True,
        pace: float = 0.0,
    ) -> None:
        self.provider = provider
        self.limits = limits or Limits()
        self.token = token
        self.origins = frozenset(origins)
        self.connections: set[Connection] = set()
        self.manager = RoomManager(
            provider, self.limits, self._from_room, closed=self._room_closed, main_config=config, main_device=device
        )
        self.manager.main.pace = pace
        self.commands = Commands(self.manager, self.limits, self._reply, token=token, main_open=main_open)
        # Device thread → event loop, in order. Entries are (kind, …); see _deliver.
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._trust_local = False

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, start the device thread, begin to load. Returns the port."""
        self._loop = asyncio.get_running_loop()
        self._trust_local = self.token is None
        self.manager.start()
        self._server = await serve(
            self._serve_connection,
            host,
            port,
            process_request=self._process_request,
            max_size=self.limits.max_message_bytes,
            max_queue=8,
            compression=None,
            ping_interval=20,
            ping_timeout=20,
            close_timeout=2,
            server_header=None,
        )
        threading.Thread(target=self._load, name="loader", daemon=True).start()
        return self._server.sockets[0].getsockname()[1]

    def _load(self) -> None:
        manager = self.manager
        if manager.main.device == "model":
            manager.post(lambda: manager.main.announce(status="loading", message="The engine is starting."))
            try:
                self.provider.load(
                    lambda sentence: manager.post(lambda: manager.main.announce(status="loading", message=sentence))
                )
            except BatchscopeError as problem:
                sentence = problem.message
                manager.post(lambda: manager.main.announce(status="failed", message=sentence))
                return
        manager.main.model = self.provider.model_name
        manager.post(manager.open_main)

    async def stop(self) -> None:
        """Say goodbye to the clients, finish the running step, close the rooms."""
        if self._server is not None:
            self._server.close(close_connections=True)
            await self._server.wait_closed()
        await asyncio.to_thread(self.manager.stop)

    # --- device thread → event loop --------------------------------------------------------------------------------------

    def _from_room(self, room: Room, text: str) -> None:
        self._put(("event", room.name, text))

    def _room_closed(self, room: Room) -> None:
        self._put(("closed", room.name))

    def _reply(self, connection: Connection, number: Any, outcome: Any) -> None:
        if isinstance(outcome, BatchscopeError):
            self._put(("answer", connection, protocol.error(number, outcome), [], None))
            return
        result, messages, room = outcome
        self._put(("answer", connection, protocol.ack(number, result), messages, room))

    def _put(self, entry: tuple[Any, ...]) -> None:
        self._outbox.append(entry)
        # One wake-up for a burst. The flag is cleared before the queue is read, so an entry is never left behind.
        if not self._scheduled and self._loop is not None and not self._loop.is_closed():
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop was closed in between: the process is ending
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._outbox:
            entry = self._outbox.popleft()
            if entry[0] == "event":
                _, room, text = entry
                for connection in self.connections:
                    if room in connection.rooms:
                        connection.event(room, text)
            elif entry[0] == "answer":
                _, connection, text, messages, room = entry
                if text is not None:
                    connection.answer(text)
                if room is not None and connection in self.connections:
                    self._subscribe(connection, room, messages)
            else:
                self._forget_room(entry[1])

    def _subscribe(self, connection: Connection, room: str, messages: list[str]) -> None:
        connection.lost.discard(room)
        if room not in connection.rooms:
            connection.rooms.add(room)
            self._count_watchers(room)
        for message in messages:
            connection.event(room, message)

    def _forget_room(self, room: str) -> None:
        gone = protocol.encode({"type": "room_closed", "room": room})
        for connection in self.connections:
            if room in connection.rooms:
                connection.rooms.discard(room)
                connection.answer(gone)

    def _count_watchers(self, room: str) -> None:
        count = sum(1 for connection in self.connections if room in connection.rooms)

        def note() -> None:
            known = self.manager.rooms.get(room)
            if known is not None:
                known.watchers = count

        self.manager.post(note)

    # --- connections -------------------------------------------------------------------------------------------------------

    def _process_request(self, socket: ServerConnection, request: Request) -> Response | None:
        """Before the handshake: the health check, the origin check and the cap on connections."""
        if request.path.split("?")[0] == "/healthz":
            main = self.manager.main
            response = socket.respond(
                HTTPStatus.OK,
                json.dumps(
                    {
                        "ready": main.engine is not None and not main.failed,
                        "rooms": len(self.manager.rooms),
                        "model": self.provider.model_name,
                    }
                )
                + "\n",
            )
            response.headers["Content-Type"] = "application/json"
            return response
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self.origins:
            return socket.respond(
                HTTPStatus.FORBIDDEN, "Web pages may not connect to the engine; they connect to the page process.\n"
            )
        if len(self.connections) >= self.limits.max_connections:
            return socket.respond(
                HTTPStatus.SERVICE_UNAVAILABLE, f"There are {len(self.connections)} connections already; try again later.\n"
            )
        return None

    async def _serve_connection(self, socket: ServerConnection) -> None:
        connection = Connection(
            socket,
            trusted=self._trust_local and _is_local(socket.remote_address),
            rate=self.limits.messages_per_second,
            burst=self.limits.message_burst,
        )
        self.connections.add(connection)
        writer = asyncio.create_task(connection.write_forever(lambda room: self._send_snapshot(connection, room)))
        try:
            await self._read_forever(connection)
        except ConnectionClosed:
            pass
        finally:
            connection.closing = True
            self.connections.discard(connection)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            for room in connection.rooms:
                self._count_watchers(room)

    async def _read_forever(self, connection: Connection) -> None:
        malformed = 0
        async for frame in connection.socket:
            try:
                if not connection.trusted and not connection.bucket.take(asyncio.get_running_loop().time()):
                    raise protocol.too_fast(frame, self.limits.messages_per_second)
                command = protocol.parse_command(frame)
            except CommandRefused as problem:
                connection.answer(protocol.error(getattr(problem, "id", None), problem))
                malformed += 1
                if malformed >= MAX_MALFORMED:
                    await self._close(connection, 1008, "too many frames that are no commands")
                    return
                continue
            try:
                await self._execute(connection, command)
            except BatchscopeError as problem:
                connection.answer(protocol.error(command.id, problem))
            except Exception as problem:  # one bad command must not end the connection
                log.exception("command %s failed", command.name)
                connection.answer(
                    protocol.error(
                        command.id, CommandRefused("internal_error", f"{command.name} failed ({type(problem).__name__}).")
                    )
                )
            if connection.bad_tokens >= MAX_BAD_TOKENS:
                await self._close(connection, 1008, "too many wrong tokens")
                return

    async def _execute(self, connection: Connection, command: protocol.Command) -> None:
        if command.name == "unsubscribe":
            connection.rooms.discard(command.room)
            connection.lost.discard(command.room)
            self._count_watchers(command.room)
        await self.commands.execute(connection, command)

    def _send_snapshot(self, connection: Connection, name: str) -> None:
        """For a client that has caught up after losing events of a room."""

        def job() -> None:
            room = self.manager.rooms.get(name)
            if room is not None:
                room.flush()
                self._put(("answer", connection, None, [protocol.encode(room.snapshot())], name))

        self.manager.post(job)

    @staticmethod
    async def _close(connection: Connection, code: int, reason: str) -> None:
        await connection.drain(1.0)
        await connection.socket.close(code, reason)


def _is_local(address: Any) -> bool:
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except (ValueError, TypeError, IndexError):
        return True  # a Unix socket has no address, and is on this machine
