"""One watched room in the page process: its reduced state, its history, its viewers.

An event arrives once, is reduced once, is kept once and goes to every viewer as the very text the engine sent. A snapshot
for a newcomer is made here and costs the engine nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import protocol
from engine.history import History
from engine.state import ENDED_STATES, empty_state
from viz.unfinished import Unfinished

HISTORY_BYTES = 24 * 2**20
CHECKPOINT_EVERY = 256

Listener = Callable[[dict[str, Any]], None]


class Feed:
    """A room's stream as the viewers see it. ``viewers`` are told by :meth:`receive`; ``listeners`` get the parsed events."""

    def __init__(self, room: str) -> None:
        self.room = room
        self.state: dict[str, Any] = empty_state()
        self.history = History(max_bytes=HISTORY_BYTES, checkpoint_every=CHECKPOINT_EVERY, pack=True)
        self.history.begin(0, protocol.encode(self._snapshot_message()))
        self.unfinished = Unfinished()
        self.viewers: set[Any] = set()
        self.listeners: set[Listener] = set()
        self.description: dict[str, Any] = {}  # as the engine described the room, to create it again after a restart
        self.owner: str | None = None
        self.ready = False  # a snapshot has come from the engine that runs now
        self.mode = "ready"  # what the room was doing before the engine was lost
        self.restoring = False  # a new engine runs, and our requests are not all queued again yet
        self._tainted = False  # holds an event of our own, which the engine never numbered
        self._snapshot: tuple[int, str, str] | None = None

    def receive(self, state: dict[str, Any], message: dict[str, Any], text: str) -> None:
        """Take one message from the engine; ``state`` already contains it."""
        self.state = state
        self.unfinished.note(message)
        if message["type"] == "snapshot":
            self._begin(message, text)
        else:
            self.history.append(message["seq"], text)
            if self.history.wants_checkpoint:
                self.history.checkpoint(message["seq"], self.snapshot_text())
            self._send(text)
        for listener in list(self.listeners):
            listener(message)

    def _begin(self, message: dict[str, Any], text: str) -> None:
        """The engine starts a numbering (or we have lost part of it)."""
        life = None if self._tainted else message.get("life")
        self.history.begin(message["seq"], text, life)
        self._tainted, self.ready, self._snapshot = False, True, None
        if message.get("life") != self.history.life:
            # Viewers resume by the name they are told; the engine's own would let them resume across our event.
            text = self.snapshot_text()
            self.history.begin(message["seq"], text, self.history.life)
        self._send(text)

    def interject(self, engine: dict[str, Any]) -> None:
        """Tell the viewers something about the engine that the engine cannot say itself, because it is gone."""
        event = {
            "v": protocol.VERSION,
            "type": "engine",
            "room": self.room,
            "seq": self.state["seq"] + 1,
            "step": self.state["step"],
            "time": self.state["time"],
            "engine": engine,
        }
        if self.state["engine"].get("status") in ("ready", "paused"):
            self.mode = self.state["engine"]["status"]
        self.state["seq"] += 1
        self.state["engine"] = {**self.state["engine"], **engine}
        self._tainted, self.ready = True, False
        text = protocol.encode(event)
        self.history.append(event["seq"], text)
        self._send(text)
        for listener in list(self.listeners):
            listener(event)

    def _send(self, text: str) -> None:
        for viewer in self.viewers:
            viewer.event(self.room, text)

    def _snapshot_message(self) -> dict[str, Any]:
        return {
            "v": protocol.VERSION,
            "type": "snapshot",
            "room": self.room,
            "seq": self.state["seq"],
            "life": self.history.life,
            "state": self.state,
        }

    def snapshot_text(self) -> str:
        """The snapshot message as of the last event; made at most once for each event, however many ask."""
        key = (self.state["seq"], self.history.life)
        if self._snapshot is None or self._snapshot[:2] != key:
            self._snapshot = (*key, protocol.encode(self._snapshot_message()))
        return self._snapshot[2]

    def unfinished_of(self, visitor: str) -> list[str]:
        """Ids of a visitor's requests that have not ended."""
        return [
            name
            for name, request in self.state["requests"].items()
            if request["visitor"] == visitor and request["state"] not in ENDED_STATES
        ]
