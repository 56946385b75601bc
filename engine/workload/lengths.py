"""How long prompts and outputs are: seeded distributions of whole numbers of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.workload.checks import fields_of, kind_of, number, refuse

MAX_LENGTH = 1_000_000
_COUNT = (1, MAX_LENGTH, True)
_SIGMA = (0.0, 3.0, False)

#: kind → (fields with their bounds, fields that must be there)
KINDS: dict[str, tuple[dict[str, tuple[float, float, bool]], tuple[str, ...]]] = {
    "fixed": ({"value": _COUNT}, ("value",)),
    "uniform": ({"low": _COUNT, "high": _COUNT}, ("low", "high")),
    "lognormal": ({"mean": _COUNT, "sigma": _SIGMA, "low": _COUNT, "high": _COUNT}, ("mean",)),
    "heavy_tail": ({"mean": _COUNT, "rare": _COUNT, "share": (0.0, 0.5, False), "sigma": _SIGMA, "low": _COUNT, "high": _COUNT},
                   ("mean", "rare", "share")),
}


@dataclass(frozen=True)
class Lengths:
    """One distribution. :meth:`draw` gives a number of tokens, at least 1.

    * ``fixed``: always ``value``.
    * ``uniform``: every whole number from ``low`` to ``high``.
    * ``lognormal``: mean ``mean``; ``sigma`` (default 0.8) is the standard deviation of the logarithm.
    * ``heavy_tail``: a share ``share`` of exactly ``rare`` tokens, the others lognormal, so that all together average
      ``mean``: "500 on average, 30,000 now and then".

    ``low`` and ``high`` also clip the last two.
    """

    kind: str
    values: tuple[tuple[str, float], ...]

    @classmethod
    def from_value(cls, value: Any, where: str) -> Lengths:
        """From an object with a ``kind``, or a plain number for a fixed length. Raises :class:`CommandRefused`."""
        if isinstance(value, int) and not isinstance(value, bool):
            return cls("fixed", (("value", int(number(value, where, 1, MAX_LENGTH, True))),))
        kind = kind_of(value, where, tuple(KINDS))
        fields = fields_of(value, where, *KINDS[kind])
        if fields.get("low", 1) > fields.get("high", MAX_LENGTH):
            raise refuse(f"{where}.low must not be above {where}.high.")
        made = cls(kind, tuple(fields.items()))
        if kind == "heavy_tail" and made._body_mean(fields) < 1:
            raise refuse(f"{where}: {fields['share']:g} of {fields['rare']:g} tokens alone average more than the mean of {fields['mean']:g}; "
                         "lower the share or raise the mean.")
        return made

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dict(self.values)}

    @staticmethod
    def _body_mean(fields: dict[str, float]) -> float:
        return (fields["mean"] - fields["share"] * fields["rare"]) / (1 - fields["share"])

    def draw(self, random: Random) -> int:
        fields = dict(self.values)
        if self.kind == "fixed":
            return int(fields["value"])
        if self.kind == "uniform":
            return random.randint(int(fields["low"]), int(fields["high"]))
        mean = fields["mean"]
        if self.kind == "heavy_tail":
            if random.random() < fields["share"]:
                return int(fields["rare"])
            mean = self._body_mean(fields)
        sigma = fields.get("sigma", 0.8)
        # A lognormal of parameters mu and sigma has the mean exp(mu + sigma²/2).
        value = random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
        return int(min(max(round(value), fields.get("low", 1)), fields.get("high", MAX_LENGTH)))
