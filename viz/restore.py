"""After a restart of the engine: rooms, knobs and unfinished requests are brought back into the new process.

A room stays pending until everything of it has been queued again, so an engine that dies in the middle of this loses
nothing either: what was already queued is found among its unfinished requests, under the name it had before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine import protocol
from engine.client import ConnectionLost, EngineClient
from engine.errors import CommandRefused
from viz.feed import Feed
from viz.unfinished import Interrupted

log = logging.getLogger("batchscope.hub")

MAIN = "main"
READY_TIMEOUT = 300.0  # for the model to load again
HOST = {"role": protocol.HOST}


@dataclass(slots=True)
class Pending:
    """A room that is not back yet. ``requests`` are still to be queued; ``names`` maps new names to those of before."""

    config: dict[str, Any] | None
    pace: float | None
    paused: bool
    requests: list[Interrupted]
    names: dict[str, str] = field(default_factory=dict)
    lost: list[dict[str, str]] = field(default_factory=list)


class Restorer:
    """What has to be brought back, by room. ``done(feed, renamed, lost)`` and ``given_up(room, why)`` tell the hub."""

    def __init__(
        self, done: Callable[[Feed, dict[str, str], list[dict[str, str]]], None], given_up: Callable[[str, str], None]
    ) -> None:
        self.pending: dict[str, Pending] = {}
        self._done, self._given_up = done, given_up

    def collect(self, feeds: dict[str, Feed]) -> None:
        """A new engine process runs: note what the old one had, before its snapshot replaces the states."""
        for room, feed in feeds.items():
            running = list(feed.unfinished.requests.values())
            waiting = self.pending.get(room)
            if waiting is None:
                engine = feed.state["engine"]
                self.pending[room] = Pending(feed.state["config"], engine.get("pace"), feed.mode == "paused", running)
            else:
                queued = [request for request in running if request not in waiting.requests]
                for request in queued:
                    request.id = waiting.names.get(request.id, request.id)
                waiting.requests[:0] = queued
                waiting.names.clear()
            feed.restoring = True

    async def run(self, client: EngineClient, feeds: dict[str, Feed]) -> None:
        """Bring back every pending room, main first. Returns early when the engine is lost again; call again then."""
        if not await self._until_ready(client):
            return
        for room in sorted(self.pending, key=lambda name: name != MAIN):
            feed = feeds.get(room)
            if feed is None:
                del self.pending[room]
                continue
            try:
                await self._restore(client, feed, self.pending[room])
            except ConnectionLost:
                return
            except CommandRefused as problem:
                log.warning("room %s could not be restored: %s", room, problem.message)
                self._given_up(room, problem.message)
            except Exception:  # one room's trouble must not cost the others their requests
                log.exception("room %s could not be restored", room)
                self._given_up(room, "The room was lost when the engine was started again.")
            else:
                waiting = self.pending[room]
                feed.restoring = False
                self._done(feed, {old: new for new, old in waiting.names.items()}, waiting.lost)
            del self.pending[room]

    async def _until_ready(self, client: EngineClient) -> bool:
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT
        while client.state(MAIN)["layout"] is None:
            if client.closed.is_set() or asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _restore(self, client: EngineClient, feed: Feed, waiting: Pending) -> None:
        if feed.room != MAIN:
            await self._create(client, feed, waiting)
            await client.subscribe(feed.room)
        elif waiting.config is not None and client.state(MAIN)["config"] != waiting.config:
            await client.command("configure", on_behalf=HOST, room=MAIN, changes=waiting.config)
        if waiting.pace is not None:
            await client.command("pace", on_behalf=HOST, room=feed.room, steps_per_second=waiting.pace)
        if waiting.paused:
            await client.command("pause", on_behalf=HOST, room=feed.room)
        while waiting.requests:
            request = waiting.requests[0]
            behalf = {"role": protocol.HOST, "visitor": request.visitor or "restored"}
            try:
                result = await client.command("submit", on_behalf=behalf, room=feed.room, **request.submission())
                waiting.names[result["ids"][0]] = request.id
            except CommandRefused as problem:
                waiting.lost.append({"id": request.id, "message": problem.message})
            waiting.requests.pop(0)

    async def _create(self, client: EngineClient, feed: Feed, waiting: Pending) -> None:
        about = feed.description
        fields = {name: about[name] for name in ("title", "public", "device", "model") if about.get(name) is not None}
        if waiting.config:
            fields["config"] = waiting.config
        behalf = {**HOST, "visitor": feed.owner} if feed.owner else HOST
        await client.command("create_room", on_behalf=behalf, name=feed.room, **fields)
