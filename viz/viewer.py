"""One browser's websocket: a bounded queue to it, checked commands from it, and what happens when it goes away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from engine import protocol
from engine.errors import BatchscopeError, CommandRefused
from engine.limits import Limits, TokenBucket
from viz.access import Access, new_visitor_key, visitor_tag
from viz.hub import MAIN, Hub

log = logging.getLogger("batchscope.viewer")

MAX_QUEUED_FRAMES = 400
MAX_QUEUED_BYTES = 4 * 2**20
MAX_ROOMS = 8  # watched at once by one viewer
MAX_MALFORMED = 100
STALLED_AFTER = 60.0  # seconds without being able to send one frame
MAX_REMEMBERED = 1000  # requests of one visitor that are cancelled when they leave


class Viewers:
    """All browsers, and the visitors behind them: a visitor may have several tabs, and come back after a lost connection."""

    def __init__(self, hub: Hub, access: Access, limits: Limits, grace: float = 15.0, classroom: Any = None) -> None:
        self.hub, self.access, self.limits, self.grace, self.classroom = hub, access, limits, grace, classroom
        self.tabs: dict[str, int] = {}
        self.requests: dict[str, deque[tuple[str, str]]] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task] = set()
        hub.on_restored.append(self.renamed)

    async def serve(self, socket: WebSocket) -> None:
        """The endpoint of ``/ws``."""
        if not self.access.origin_allowed(socket.scope):
            await socket.close(1008)  # before the handshake: the browser sees 403
            return
        if len(self.hub.viewers) >= self.limits.max_connections:
            await socket.close(1013)
            return
        await socket.accept()
        viewer = Viewer(socket, self)
        self.hub.viewers.add(viewer)
        writer = asyncio.create_task(viewer.write_forever())
        try:
            await viewer.read_forever(writer)
        finally:
            self.hub.viewers.discard(viewer)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            viewer.leave_all()
            self.left(viewer.visitor)
            self.hub.presence_changed()

    # --- visitors -------------------------------------------------------------------------------------------------------

    def arrived(self, visitor: str) -> None:
        self.tabs[visitor] = self.tabs.get(visitor, 0) + 1
        handle = self._leaving.pop(visitor, None)
        if handle is not None:
            handle.cancel()

    def left(self, visitor: str) -> None:
        """A tab has closed. When it was the visitor's last and they do not come back soon, their requests are cancelled."""
        remaining = self.tabs.get(visitor, 1) - 1
        if remaining > 0:
            self.tabs[visitor] = remaining
            return
        self.tabs.pop(visitor, None)
        if self.requests.get(visitor):
            self._leaving[visitor] = asyncio.get_running_loop().call_later(self.grace, self._gone, visitor)

    def remember(self, visitor: str, room: str, ids: list[str]) -> None:
        self.requests.setdefault(visitor, deque(maxlen=MAX_REMEMBERED)).extend((room, name) for name in ids)

    def _gone(self, visitor: str) -> None:
        self._leaving.pop(visitor, None)
        requests = self.requests.pop(visitor, ())
        self.spawn(self._cancel(visitor, list(requests)))

    def spawn(self, work: Any) -> None:
        """Run ``work`` beside everything else, held until it is done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel(self, visitor: str, requests: list[tuple[str, str]]) -> None:
        # As a viewer: whatever an id means by now, the engine cancels only this visitor's own requests.
        for room, name in requests:
            with contextlib.suppress(CommandRefused):
                await self.hub.command("cancel", role=protocol.VIEWER, visitor=visitor, room=room, request=name)

    def renamed(self, room: str, names: dict[str, str]) -> None:
        """The engine was started again, and counts anew: ``names`` are those of before and of now."""
        for visitor, requests in self.requests.items():
            kept = [(place, names.get(name) if place == room else name) for place, name in requests]
            self.requests[visitor] = deque(((place, name) for place, name in kept if name is not None), maxlen=MAX_REMEMBERED)


class Viewer:
    """One connection. A viewer that reads too slowly loses frames and gets a fresh snapshot; nobody else notices."""

    def __init__(self, socket: WebSocket, viewers: Viewers) -> None:
        self.socket, self.viewers, self.hub = socket, viewers, viewers.hub
        self.role = viewers.access.role(socket.scope, socket.query_params.get("host"))
        self.key = new_visitor_key()
        self.visitor = visitor_tag(self.key)
        viewers.arrived(self.visitor)
        now = asyncio.get_running_loop().time()
        self.bucket = TokenBucket(viewers.limits.messages_per_second, viewers.limits.message_burst, now)
        self.rooms: set[str] = set()
        self.lost: set[str] = set()
        self._queue: deque[tuple[str | None, str]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    # --- to the browser -------------------------------------------------------------------------------------------------

    def event(self, room: str, text: str) -> None:
        if room in self.lost:
            return
        if len(self._queue) >= MAX_QUEUED_FRAMES or (self._bytes + len(text) > MAX_QUEUED_BYTES and self._queue):
            # The oldest events are worth the least: all of this room's go, and a snapshot will stand for them.
            self._queue = deque(entry for entry in self._queue if entry[0] != room)
            self._bytes = sum(len(queued) for _, queued in self._queue)
            self.lost.add(room)
            self._news.set()
            return
        self._put(room, text)

    def answer(self, text: str) -> None:
        """Queue an answer; unlike events these are never dropped."""
        self._put(None, text)

    def _put(self, room: str | None, text: str) -> None:
        self._queue.append((room, text))
        self._bytes += len(text)
        self._news.set()

    async def write_forever(self) -> None:
        try:
            while True:
                while self._queue:
                    _, text = self._queue.popleft()
                    self._bytes -= len(text)
                    if self.socket.application_state is not WebSocketState.CONNECTED:
                        return
                    async with asyncio.timeout(STALLED_AFTER):
                        await self.socket.send_text(text)
                self._news.clear()
                self._catch_up()
                await self._news.wait()
        except (WebSocketDisconnect, RuntimeError, TimeoutError, OSError):
            return  # gone, or stalled for a minute: the reader is ended by whoever waits for us

    def _catch_up(self) -> None:
        for room in list(self.lost):
            self.lost.discard(room)
            feed = self.hub.feeds.get(room)
            if feed is not None and room in self.rooms:
                self._put(room, feed.snapshot_text())

    # --- from the browser -----------------------------------------------------------------------------------------------

    async def read_forever(self, writer: asyncio.Task) -> None:
        malformed = 0
        while malformed < MAX_MALFORMED:
            reading = asyncio.create_task(self.socket.receive())
            await asyncio.wait({reading, writer}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # the writer gave up
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                break
            try:
                message = reading.result()
            except (WebSocketDisconnect, RuntimeError, OSError):
                return
            if message["type"] == "websocket.disconnect":
                return
            frame = message.get("text")
            malformed += not await self._handle(frame if frame is not None else message.get("bytes") or b"")
        with contextlib.suppress(Exception):
            await self.socket.close(1008)

    async def _handle(self, frame: str | bytes) -> bool:
        """Obey one frame; False when it was no command."""
        number = None
        try:
            if len(frame) > self.viewers.limits.max_message_bytes:
                raise CommandRefused("too_large", f"A message may have at most {self.viewers.limits.max_message_bytes} bytes.")
            if not self.bucket.take(asyncio.get_running_loop().time()):
                raise protocol.too_fast(frame, self.viewers.limits.messages_per_second)
            for_class = self.viewers.classroom.parse(frame) if self.viewers.classroom else None
            command = None if for_class else protocol.parse_command(frame)
        except CommandRefused as problem:
            self.answer(protocol.error(getattr(problem, "id", None), problem))
            return False
        if for_class:
            self._obey_soon(for_class)
            return True
        number = command.id
        try:
            if command.on_behalf is not None:
                raise CommandRefused("not_trusted", "A viewer speaks only for itself; leave on_behalf out.")
            own = getattr(self, f"_{command.name}", None)
            if own is not None:
                await own(command)
            else:
                self.answer(protocol.ack(number, await self._forward(command)))
        except BatchscopeError as problem:
            self.answer(protocol.error(number, problem))
        except Exception as problem:  # one bad command must not end the connection
            log.exception("command %s failed", command.name)
            self.answer(
                protocol.error(number, CommandRefused("internal_error", f"{command.name} failed ({type(problem).__name__})."))
            )
        return True

    def _obey_soon(self, value: dict[str, Any]) -> None:
        """A command for the class (see viz/classroom.py). Scoring takes seconds, so the reader does not wait for it."""

        async def obey() -> None:
            try:
                self.answer(protocol.ack(value.get("id"), await self.viewers.classroom.obey(self, value)))
            except BatchscopeError as problem:
                self.answer(protocol.error(value.get("id"), problem))
            except Exception as problem:  # one bad command must not end the connection
                log.exception("command %s failed", value["cmd"])
                self.answer(
                    protocol.error(
                        value.get("id"), CommandRefused("internal_error", f"{value['cmd']} failed ({type(problem).__name__}).")
                    )
                )

        self.viewers.spawn(obey())

    async def _forward(self, command: protocol.Command) -> Any:
        result = await self.hub.command(command.name, role=self.role, visitor=self.visitor, **command.fields)
        if command.name == "submit":
            self.viewers.remember(self.visitor, command.room, result["ids"])
        elif command.name in ("create_room", "fork"):
            self.hub.note_created(result, self.visitor)
        return result

    async def _hello(self, command: protocol.Command) -> None:
        token, key = command.fields.get("token"), command.fields.get("key")
        warning = ""
        if token is not None:
            self.role = self.viewers.access.role(self.socket.scope, token)
            if self.role != protocol.HOST:
                warning = "This host link is not the one the server printed when it started; you are a viewer."
        if key is not None and 16 <= len(key) <= 64:
            before, self.key, self.visitor = self.visitor, key, visitor_tag(key)
            self.viewers.arrived(self.visitor)
            self.viewers.left(before)
        rooms, health = [], self.hub.health()
        if self.hub.connected:
            rooms = (await self.hub.command("rooms", role=self.role, visitor=self.visitor))["rooms"]
        self.answer(
            protocol.ack(
                command.id,
                {
                    "role": self.role,
                    "visitor": self.visitor,
                    "key": self.key,
                    "version": protocol.VERSION,
                    "public": self.viewers.access.public,
                    "model": health["engine"]["model"],
                    "rooms": rooms,
                    "viewers": len(self.hub.viewers),
                    "warning": warning,
                },
            )
        )

    async def _subscribe(self, command: protocol.Command) -> None:
        if len(self.rooms) >= MAX_ROOMS and command.room not in self.rooms:
            raise CommandRefused("too_many_rooms", f"One page can watch {MAX_ROOMS} rooms at once; unsubscribe from one first.")
        feed = await self.hub.feed(command.room)
        history, fields = feed.history, command.fields
        missing = history.since(fields["from_seq"], fields.get("life", "")) if "from_seq" in fields else None
        self.lost.discard(command.room)
        self.answer(
            protocol.ack(
                command.id, {"seq": history.last, "life": history.life, "first": history.first, "resumed": missing is not None}
            )
        )
        feed.viewers.add(self)
        self.rooms.add(command.room)
        for text in missing if missing is not None else [feed.snapshot_text()]:
            self.event(command.room, text)
        self.hub.presence_changed()

    async def _unsubscribe(self, command: protocol.Command) -> None:
        self._leave(command.room)
        self.answer(protocol.ack(command.id, {}))

    async def _snapshot(self, command: protocol.Command) -> None:
        feed = self.hub.feeds.get(command.room)
        if feed is None or command.room not in self.rooms:
            feed = await self.hub.feed(command.room)
        self.answer(f'{{"type":"ack","id":{protocol.encode(command.id)},"result":{feed.snapshot_text()}}}')

    def _leave(self, room: str) -> None:
        self.rooms.discard(room)
        self.lost.discard(room)
        feed = self.hub.feeds.get(room)
        if feed is not None:
            feed.viewers.discard(self)
            self.hub.unwatch(room)

    def leave_all(self) -> None:
        for room in list(self.rooms):
            self._leave(room)


__all__ = ["MAIN", "Viewer", "Viewers"]
