"""Checks that every part of a workload goes through, with the sentence a person reads when one fails."""

from __future__ import annotations

import math
from typing import Any

from engine.errors import CommandRefused


def refuse(message: str) -> CommandRefused:
    """The error to raise for a workload that cannot be used."""
    return CommandRefused("bad_workload", message)


def number(value: Any, where: str, low: float, high: float, whole: bool = False) -> float:
    """``value`` if it is a number between the bounds (inclusive). Raises :class:`CommandRefused`."""
    good = isinstance(value, int) if whole else isinstance(value, (int, float))
    if isinstance(value, bool) or not good or not math.isfinite(value):
        raise refuse(f"{where} must be {'a whole number' if whole else 'a number'}, not {str(value)[:60]!r}.")
    if not low <= value <= high:
        raise refuse(f"{where} must lie between {low:g} and {high:g}, not {value:g}.")
    return value


def fields_of(value: Any, where: str, known: dict[str, tuple[float, float, bool]], needed: tuple[str, ...]) -> dict[str, float]:
    """The numeric fields of an object with a ``kind``: bounds and wholeness by name. Raises :class:`CommandRefused`."""
    for name in value:
        if name != "kind" and name not in known:
            raise refuse(f"{where} has no field {str(name)[:60]!r}; for {value['kind']} it has {', '.join(known)}.")
    for name in needed:
        if name not in value:
            raise refuse(f"{where} of kind {value['kind']} needs {name}.")
    return {name: number(value[name], f"{where}.{name}", *known[name]) for name in known if name in value}


def kind_of(value: Any, where: str, kinds: tuple[str, ...]) -> str:
    """The ``kind`` of an object, one of ``kinds``. Raises :class:`CommandRefused`."""
    if not isinstance(value, dict) or value.get("kind") not in kinds:
        raise refuse(f"{where} must be an object whose kind is one of {', '.join(kinds)}.")
    return value["kind"]
