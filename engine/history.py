"""A bounded log of one room's events, as the texts that were sent.

The log is a row of segments. A segment starts with a checkpoint (a snapshot message) and holds the events after it, so
that dropping the oldest segment never leaves an event without a state to stand on. With ``pack`` a
segment that is full is compressed, to a tenth of its size or so: what is old is asked for rarely, and every room of a public server has a
history. It takes some milliseconds, which the engine, between two steps, does not spend on its short log::

    checkpoint@0  e1 e2 … e256 | checkpoint@256  e257 … e512 | checkpoint@512  e513 …
    └──────── dropped whole ──┘

``life`` names one uninterrupted numbering. Sequence numbers of different lives must never be mixed: after a restart of the
engine the same number is another event, and a client that resumed across would see a false picture.
"""

from __future__ import annotations

import secrets
import zlib
from collections import deque
from dataclasses import dataclass, field

#: between packed texts: a control character that JSON never holds as it is
SEPARATOR = "\x1e"


@dataclass(slots=True)
class Segment:
    """A checkpoint and the events that follow it. ``first`` is the checkpoint's sequence number, ``size`` in characters of text."""

    first: int
    checkpoint: str
    events: list[str] = field(default_factory=list)
    size: int = 0
    count: int = 0
    packed: bytes | None = None

    @property
    def last(self) -> int:
        return self.first + self.count

    def append(self, text: str) -> None:
        self.events.append(text)
        self.count += 1
        self.size += len(text)

    def pack(self) -> None:
        """Nothing will be added."""
        self.packed = zlib.compress(SEPARATOR.join((self.checkpoint, *self.events)).encode(), 1)
        self.checkpoint, self.events = "", []

    def held(self) -> bytes | list[str]:
        """Checkpoint and events as they lie in memory now, for :func:`unpacked`; what is added later does not appear in it."""
        return self.packed if self.packed is not None else [self.checkpoint, *self.events]


def unpacked(held: bytes | list[str]) -> list[str]:
    """A segment's checkpoint and every event after it."""
    return zlib.decompress(held).decode().split(SEPARATOR) if isinstance(held, bytes) else held


class History:
    """The retained events of one room, at most ``max_bytes`` characters of them. ``checkpoint_every`` 0 keeps events alone (for
    resuming, not for replaying)."""

    def __init__(self, *, max_bytes: int, checkpoint_every: int = 256, pack: bool = False) -> None:
        self.max_bytes = max_bytes
        self.checkpoint_every = checkpoint_every
        self.pack = pack
        self.life = ""
        self.size = 0
        self.segments: deque[Segment] = deque()

    def begin(self, seq: int, checkpoint: str, life: str | None = None) -> None:
        """Forget everything: a new numbering starts after ``seq``."""
        self.life = life or secrets.token_hex(4)
        self.segments.clear()
        self.size = 0
        self.checkpoint(seq, checkpoint)

    @property
    def last(self) -> int:
        """Sequence number of the newest event (or of the checkpoint when none follows it)."""
        return self.segments[-1].last if self.segments else 0

    @property
    def first(self) -> int:
        """The oldest sequence number whose state can be rebuilt."""
        return self.segments[0].first if self.segments else 0

    def append(self, seq: int, text: str) -> None:
        """Add the next event. ``seq`` must follow the last one; raises ``ValueError`` otherwise."""
        if seq != self.last + 1:
            raise ValueError(f"event {seq} does not follow event {self.last}")
        self.segments[-1].append(text)
        self.size += len(text)
        while self.size > self.max_bytes and len(self.segments) > 1:
            self.size -= self.segments.popleft().size

    @property
    def wants_checkpoint(self) -> bool:
        return self.segments[-1].count >= self.checkpoint_every

    def checkpoint(self, seq: int, text: str) -> None:
        """Start a new segment with the state after event ``seq``, which must be the newest."""
        if self.segments and seq != self.last:
            raise ValueError(f"checkpoint at {seq}, but the newest event is {self.last}")
        if self.pack and self.segments:
            self.segments[-1].pack()
        self.segments.append(Segment(seq, text, size=len(text)))
        self.size += len(text)

    def since(self, seq: int, life: str) -> list[str] | None:
        """The events after ``seq``; None when they are not all here, or belong to another life."""
        if life != self.life or not self.segments or not self.first <= seq <= self.last:
            return None
        missing: list[str] = []
        for segment in self.segments:
            if segment.last > seq:
                missing.extend(unpacked(segment.held())[1 + max(0, seq - segment.first) :])
        return missing

    def held(self, start: int) -> list[bytes | list[str]]:
        """The segments from the newest checkpoint at or before ``start`` (else the oldest there is), as they lie in memory: whoever
        sends them unpacks one at a time. Of the later ones the checkpoint is no event."""
        chosen = list(self.segments)
        while len(chosen) > 1 and chosen[1].first <= start:
            chosen.pop(0)
        return [segment.held() for segment in chosen]
