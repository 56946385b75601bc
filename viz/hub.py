"""The page process's one connection to the engine, shared by every viewer.

It follows a room while somebody watches it (main always), brings everything back after the engine has died, and forwards the
viewers' commands with the role and the tag of who sent them. Roles are enforced by the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Protocol

from engine import protocol
from engine.client import ConnectionLost, EngineClient
from engine.errors import BatchscopeError, CommandRefused
from viz.feed import Feed
from viz.restore import Restorer

log = logging.getLogger("batchscope.hub")

MAIN = "main"
LINGER = 30.0  # seconds a room is followed after its last viewer has left
RETRY_WAIT = (0.2, 5.0)  # first and longest pause between two attempts to reach the engine
ENDPOINT_PATIENCE = 2.0  # seconds without an engine process after which its last words are shown
ENDING_PATIENCE = 2.0  # … and for which they are waited for after the connection was lost


class EngineSource(Protocol):
    """Where the engine is (:class:`viz.supervisor.Supervisor` or ``RemoteEngine``)."""

    last_words: str

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def endpoint(self) -> tuple[str, str | None]: ...
    async def ended(self, patience: float) -> None: ...
    def status(self) -> dict[str, Any]: ...


class Hub:
    """Feeds by room, and the way to the engine."""

    def __init__(self, source: EngineSource) -> None:
        self.source = source
        self.client: EngineClient | None = None
        self.instance = ""
        self.feeds: dict[str, Feed] = {MAIN: Feed(MAIN)}
        self.viewers: set[Any] = set()
        self.connected = False
        self.restorer = Restorer(self._restored, self._drop)
        self.on_restored: list[Callable[[str, dict[str, str]], None]] = []
        self._task: asyncio.Task | None = None
        self._lingering: dict[str, asyncio.TimerHandle] = {}
        self._presence_due = False
        self._tasks: set[asyncio.Task] = set()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.source.start()
        self._task = asyncio.create_task(self._stay_connected())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        if self.client is not None:
            with contextlib.suppress(Exception):
                await self.client.close()
        await self.source.stop()

    async def _stay_connected(self) -> None:
        wait = RETRY_WAIT[0]
        while True:
            url, token = await self._endpoint()
            client = EngineClient(url, token=token, on_event=self._received, on_other=self._other)
            try:
                await client.connect()
                await self._attached(client)
                wait = RETRY_WAIT[0]
                await client.closed.wait()
            except (ConnectionLost, BatchscopeError) as problem:
                log.warning("no connection to the engine: %s", problem)
                self._say_down(str(problem))
            except Exception:  # the hub must outlive whatever happens here
                log.exception("following the engine failed")
            finally:
                with contextlib.suppress(Exception):
                    await client.close()
            if self.connected:
                self.connected = False
                await self.source.ended(ENDING_PATIENCE)  # the supervisor learns a moment later how the process ended
                count = sum(len(feed.unfinished.requests) for feed in self.feeds.values())
                note = f" {count} unfinished {'request' if count == 1 else 'requests'} will be queued again." if count else ""
                self._say_down(
                    (self.source.last_words or "The connection to the engine was lost.") + " It is being started again." + note
                )
            await asyncio.sleep(wait)
            wait = min(RETRY_WAIT[1], wait * 2)

    async def _endpoint(self) -> tuple[str, str | None]:
        """Where the engine listens; while there is none, the viewers are told why."""
        waiting = asyncio.create_task(self.source.endpoint())
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=ENDPOINT_PATIENCE)
            if not waiting.done() and self.source.last_words:
                self._say_down(f"{self.source.last_words} It is being started again.")
        return waiting.result()

    def _say_down(self, sentence: str) -> None:
        for feed in self.feeds.values():
            if feed.state["engine"].get("message") != sentence:
                feed.interject({"status": "failed", "message": sentence})

    async def _attached(self, client: EngineClient) -> None:
        restarted = bool(self.instance) and client.hello["instance"] != self.instance
        self.client, self.instance, self.connected = client, client.hello["instance"], True
        if restarted:
            self.restorer.collect(self.feeds)
        await client.subscribe(MAIN)
        if not restarted:
            for room in [room for room in self.feeds if room != MAIN]:
                await self._follow_again(room)
        if self.restorer.pending:
            self._spawn(self.restorer.run(client, self.feeds))

    def _restored(self, feed: Feed, renamed: dict[str, str], lost: list[dict[str, str]]) -> None:
        message = {"type": "restored", "room": feed.room, "renamed": renamed, "lost": lost}
        for viewer in feed.viewers:
            viewer.answer(protocol.encode(message))
        for listener in list(feed.listeners):
            listener(message)
        for tell in self.on_restored:
            tell(feed.room, renamed)

    # --- from the engine ------------------------------------------------------------------------------------------------

    def _received(self, room: str, message: dict[str, Any], text: str) -> None:
        feed = self.feeds.get(room)
        if feed is not None:
            feed.receive(self.client.state(room) if self.client else {}, message, text)

    def _other(self, message: dict[str, Any]) -> None:
        if message.get("type") == "room_closed":
            self._drop(message["room"], "The room was closed.")

    def _drop(self, room: str, why: str) -> None:
        feed = self.feeds.pop(room, None)
        if feed is None:
            return
        if self.client is not None:
            self.client.rooms.pop(room, None)
        for viewer in list(feed.viewers):
            viewer.rooms.discard(room)
            viewer.answer(protocol.encode({"type": "room_closed", "room": room, "message": why}))
        for listener in list(feed.listeners):
            listener({"type": "room_closed", "room": room})

    # --- watching -------------------------------------------------------------------------------------------------------

    async def feed(self, room: str) -> Feed:
        """The feed of a room, followed from now on. Raises :class:`CommandRefused` when there is no such room."""
        handle = self._lingering.pop(room, None)
        if handle is not None:
            handle.cancel()
        feed = self.feeds.get(room)
        if feed is not None and (feed.ready or room == MAIN or not self.connected):
            return feed
        feed = self.feeds.setdefault(room, Feed(room))
        try:
            await self._follow(room)
        except CommandRefused:
            if self.feeds.get(room) is feed and not feed.viewers:
                del self.feeds[room]
            raise
        return feed

    async def _follow(self, room: str) -> None:
        client = self._client()
        await client.subscribe(room)
        described = await client.command("rooms", on_behalf={"role": protocol.HOST})
        for description in described["rooms"]:
            if description["room"] == room:
                self.feeds[room].description = description

    async def _follow_again(self, room: str) -> None:
        try:
            await self._follow(room)
        except CommandRefused as problem:
            self._drop(room, problem.message)

    def unwatch(self, room: str) -> None:
        """A viewer has left the room; when it was the last, the room is followed a little longer and then let go."""
        feed = self.feeds.get(room)
        if feed is None or feed.viewers or feed.listeners or room == MAIN:
            return
        self._lingering[room] = asyncio.get_running_loop().call_later(LINGER, self._let_go, room)

    def _let_go(self, room: str) -> None:
        self._lingering.pop(room, None)
        feed = self.feeds.get(room)
        if feed is None or feed.viewers or feed.listeners:
            return
        del self.feeds[room]
        if self.client is not None and not self.client.closed.is_set():
            self._spawn(self._unsubscribe(room))

    async def _unsubscribe(self, room: str) -> None:
        with contextlib.suppress(CommandRefused, ConnectionLost):
            await self.client.unsubscribe(room)

    # --- commands -------------------------------------------------------------------------------------------------------

    def _client(self) -> EngineClient:
        if self.client is None or not self.connected:
            raise CommandRefused(
                "engine_down",
                f"The engine is not running right now. {self.source.last_words or 'It is being started.'} Try again in a moment.",
            )
        return self.client

    async def command(self, name: str, /, *, role: str, visitor: str, **fields: Any) -> Any:
        """Forward a command. Raises :class:`CommandRefused`."""
        feed = self.feeds.get(fields.get("room", MAIN))
        if name == "submit" and feed is not None and feed.restoring:
            # Names of requests are in flux until the interrupted ones are back.
            raise CommandRefused(
                "engine_down",
                "The engine has just been started again and picks up the interrupted requests; try again in a moment.",
            )
        try:
            return await self._client().command(name, on_behalf={"role": role, "visitor": visitor}, **fields)
        except ConnectionLost:
            raise CommandRefused("engine_down", "The engine was lost before it answered; it is being started again.") from None

    def note_created(self, description: dict[str, Any], visitor: str) -> None:
        """Remember whose room this is, to create it again after a restart of the engine."""
        feed = self.feeds.setdefault(description["room"], Feed(description["room"]))
        feed.description, feed.owner = description, visitor
        self.unwatch(description["room"])

    # --- presence -------------------------------------------------------------------------------------------------------

    def presence_changed(self) -> None:
        """Tell everybody how many watch, at most twice a second."""
        if not self._presence_due:
            self._presence_due = True
            asyncio.get_running_loop().call_later(0.5, self._tell_presence)

    def _tell_presence(self) -> None:
        self._presence_due = False
        for room, feed in self.feeds.items():
            if feed.viewers:
                text = protocol.encode(
                    {"type": "presence", "room": room, "viewers": len(feed.viewers), "total": len(self.viewers)}
                )
                for viewer in feed.viewers:
                    viewer.event(room, text)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- facts ----------------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """The state of both processes."""
        main = self.feeds[MAIN].state
        engine = {
            **self.source.status(),
            "connected": self.connected,
            "status": main["engine"].get("status"),
            "message": main["engine"].get("message", ""),
            "model": main["engine"].get("model"),
            "step": main["step"],
        }
        ready = self.connected and self.feeds[MAIN].ready and main["layout"] is not None and engine["status"] != "failed"
        return {
            "ready": ready,
            "page": {"status": "ok", "viewers": len(self.viewers), "rooms": len(self.feeds)},
            "engine": engine,
        }
