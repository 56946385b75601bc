"""Numbers as the prose shows them. The twin in the browser is ``viz/static/lessons/values.js``; a test holds both together."""

from __future__ import annotations

from typing import Any

from lessons.expression import round_half_up

_BYTES = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def fixed(value: float, digits: int) -> str:
    """``value`` with that many decimals and commas between thousands."""
    return f"{round_half_up(value, digits):,.{digits}f}"


def graded(value: float) -> str:
    """About three significant digits: 0.53, 5.3, 53.1, 531."""
    size = abs(value)
    if size >= 100:
        return fixed(value, 0)
    return fixed(value, 1 if size >= 10 else 2)


def format_value(value: Any, format_name: str = "") -> str:
    """``value`` in one of :data:`lessons.format.FORMATS`; a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if not isinstance(value, (int, float)):
        return "…"
    if format_name == "":
        return fixed(value, 0) if value == int(value) else graded(value)
    if format_name == "int":
        return fixed(value, 0)
    if format_name.startswith("."):
        return fixed(value, int(format_name[1:]))
    if format_name.startswith("%"):
        return fixed(value * 100, int(format_name[2:] or 0)) + " %"
    if format_name in _BYTES:
        return f"{graded(value / _BYTES[format_name])} {format_name}"
    if format_name == "x":
        return f"{graded(value)}×"
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[format_name]
    return f"{graded(value * scale)} {'µs' if format_name == 'us' else format_name}"
