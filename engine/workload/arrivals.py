"""When requests arrive: open-loop processes in seconds, and the closed loop, which reacts to finished requests."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from engine.workload.checks import fields_of, kind_of

KINDS: dict[str, tuple[dict[str, tuple[float, float, bool]], tuple[str, ...]]] = {
    "at_once": ({}, ()),
    "poisson": ({"rate": (1e-3, 1e5, False)}, ("rate",)),
    "bursts": ({"size": (1, 20_000, True), "interval": (1e-3, 3600.0, False)}, ("size", "interval")),
    "closed": ({"users": (1, 4096, True), "think": (0.0, 3600.0, False)}, ("users",)),
}


@dataclass(frozen=True)
class Arrivals:
    """One arrival process.

    * ``at_once``: everything at the start.
    * ``poisson``: independent arrivals, ``rate`` per second on average.
    * ``bursts``: ``size`` requests together every ``interval`` seconds.
    * ``closed``: ``users`` users, each of whom sends the next request ``think`` seconds (default 0) after the last answer.
    """

    kind: str
    values: tuple[tuple[str, float], ...]

    @classmethod
    def from_value(cls, value: Any, where: str = "arrivals") -> Arrivals:
        """From an object with a ``kind``. Raises :class:`CommandRefused`."""
        kind = kind_of(value, where, tuple(KINDS))
        return cls(kind, tuple(fields_of(value, where, *KINDS[kind]).items()))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dict(self.values)}

    @property
    def closed(self) -> bool:
        return self.kind == "closed"

    def get(self, name: str, default: float = 0.0) -> float:
        return dict(self.values).get(name, default)

    def times(self, count: int, random: Random) -> list[float | None]:
        """Seconds after the start for each of ``count`` requests; ``None`` where it depends on answers (closed loop)."""
        if self.kind == "closed":
            return [None] * count
        if self.kind == "at_once":
            return [0.0] * count
        if self.kind == "bursts":
            return [index // int(self.get("size")) * self.get("interval") for index in range(count)]
        moment, moments = 0.0, []
        for _ in range(count):
            moment += random.expovariate(self.get("rate"))
            moments.append(moment)
        return moments
