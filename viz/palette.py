"""The request palette for exports; ``viz/static/palette.js`` is its twin in the browser, and a test holds them equal."""

from __future__ import annotations

REQUEST_COLOURS = ("#0b6bcb", "#d9780f", "#12876f", "#b8336a", "#6a4bc4", "#8a7a00", "#0f8fb3", "#a3461f", "#4f8a10", "#c2339b",
                   "#41597a", "#b08968")


def request_colour(ordinal: int) -> str:
    """``#rrggbb`` of the request that arrived as number ``ordinal`` in its room."""
    return REQUEST_COLOURS[ordinal % len(REQUEST_COLOURS)]
