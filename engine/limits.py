"""The caps that keep one visitor from spoiling it for the others. Each refusal names its cap."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one engine server. Those marked *viewer* do not bind a host."""

    max_message_bytes: int = 2 * 2**20  # one frame, and one HTTP body
    messages_per_second: float = 40.0  # per connection, sustained
    message_burst: int = 200  # … and at once
    max_connections: int = 1000
    max_rooms: int = 24  # main included
    max_rooms_per_visitor: int = 3  # viewer
    room_idle_seconds: float = 900.0  # a room nobody watches and that does nothing is closed after this long
    max_room_blocks: int = 200_000  # … and of each room but main
    max_room_memory: int = 6 * 2**30  # bytes of KV cache over all rooms
    max_requests_per_visitor: int = 64  # viewer; waiting and running at once, in one room
    max_requests_per_submit: int = 256
    max_queue_length: int = 20_000  # waiting in one room
    max_prompt_chars: int = 400_000
    max_prompt_tokens: int = 131_072  # viewer
    max_output_tokens: int = 8_192  # viewer
    max_steps_at_once: int = 10_000  # the count of `step`
    max_pace: float = 1_000.0  # steps per second that can be asked for
    max_simulated_pace: float = 240.0  # an unpaced simulated room would otherwise eat the CPU of the real ones
    max_journal_entries: int = 50_000
    max_journal_tokens: int = 2_000_000      # prompt tokens that a room's journal may hold

    def replaced(self, changes: dict[str, Any]) -> Limits:
        """A copy with some caps changed. Raises ``ValueError`` for an unknown name or a value that is not a positive number."""
        known = {item.name: item.type for item in fields(self)}
        for name, value in changes.items():
            if name not in known or isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                raise ValueError(f"{name}={value!r} is not a limit; the limits are {', '.join(known)}, each a positive number.")
        return replace(self, **{name: int(value) if known[name] == "int" else float(value) for name, value in changes.items()})


class TokenBucket:
    """Allows ``rate`` events a second on average and ``burst`` at once."""

    __slots__ = ("burst", "level", "rate", "updated")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self.level, self.updated = burst, now

    def take(self, now: float) -> bool:
        """Use up one event; False when there is none left."""
        self.level = min(self.burst, self.level + (now - self.updated) * self.rate)
        self.updated = now
        if self.level < 1.0:
            return False
        self.level -= 1.0
        return True
