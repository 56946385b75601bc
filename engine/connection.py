"""One websocket connection to the engine: who it is, how fast it may talk, and a bounded queue of what it is told.

A client that reads too slowly loses events, never acknowledgements, and gets a snapshot when it has caught up. Nobody else
notices.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

from engine import protocol
from engine.limits import TokenBucket

MAX_QUEUED_BYTES = 8 * 2**20
MAX_QUEUED_FRAMES = 5000
MAX_BAD_TOKENS = 3

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Identity:
    """For whom a command speaks. ``visitor`` is an opaque tag, never a name."""

    role: str
    visitor: str | None

    @property
    def host(self) -> bool:
        return self.role == protocol.HOST

    def may_host(self, room: Any) -> bool:
        """Whether host-only commands are allowed in ``room``: for a host anywhere, else in a room of one's own."""
        return self.host or (self.visitor is not None and room.owner == self.visitor)


class Connection:
    """The engine's side of one connection; lives on the event loop.

    ``trusted`` (knows the token, or local when no token is set) may speak for others with ``on_behalf``.
    """

    def __init__(self, socket: Any, *, trusted: bool, rate: float, burst: float) -> None:
        self.socket = socket
        self.trusted = trusted
        self.identity = Identity(protocol.HOST if trusted else protocol.VIEWER, f"direct-{next(_numbers)}")
        self.bucket = TokenBucket(rate, burst, asyncio.get_running_loop().time())
        self.bad_tokens = 0
        self.rooms: set[str] = set()
        self.lost: set[str] = set()  # rooms whose events were dropped and that need a snapshot
        self._queue: deque[tuple[str | None, str]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self.closing = False

    def authenticate(self, given: str, expected: str | None) -> bool:
        """Compare in constant time; a match makes the connection a trusted host."""
        if expected is not None and hmac.compare_digest(given.encode(), expected.encode()):
            self.trusted, self.identity = True, Identity(protocol.HOST, self.identity.visitor)
            return True
        self.bad_tokens += 1
        return False

    def speaks_for(self, command: protocol.Command) -> Identity:
        """Who is behind a command. Only a trusted connection's ``on_behalf`` counts; from others it is refused earlier."""
        behalf = command.on_behalf
        if behalf is None or not self.trusted:
            return self.identity
        return Identity(behalf.get("role", protocol.VIEWER), behalf.get("visitor") or self.identity.visitor)

    # --- what it is told ----------------------------------------------------------------------------------------------------

    def answer(self, text: str) -> None:
        """Queue an acknowledgement or an error; these are never dropped."""
        self._put(None, text)

    def event(self, room: str, text: str) -> None:
        """Queue an event of a subscribed room, or note that it was lost."""
        if room in self.lost:
            return
        if self._bytes + len(text) > MAX_QUEUED_BYTES or len(self._queue) >= MAX_QUEUED_FRAMES:
            self._drop_events(room)
            self.lost.add(room)
            self._news.set()
            return
        self._put(room, text)

    def _put(self, room: str | None, text: str) -> None:
        if self.closing:
            return
        self._queue.append((room, text))
        self._bytes += len(text)
        self._news.set()

    def _drop_events(self, room: str) -> None:
        self._queue = deque(entry for entry in self._queue if entry[0] != room)
        self._bytes = sum(len(text) for _, text in self._queue)

    async def write_forever(self, ask_snapshot: Any) -> None:
        """Send the queue as fast as the client reads. ``ask_snapshot(room)`` is called for a lost room once all was sent."""
        while True:
            while self._queue:
                _, text = self._queue.popleft()
                self._bytes -= len(text)
                await self.socket.send(text)
            self._news.clear()
            for room in list(self.lost):
                ask_snapshot(room)
            await self._news.wait()

    async def drain(self, timeout: float) -> None:
        """Give what is queued a moment to leave before the connection is closed."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self._queue and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
