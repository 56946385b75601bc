"""Distributions of TTFT and ITL on logarithmic axes, with running percentiles."""

from typing import Any

from viz.panels import PanelSpec


def _axes(suffix: str, low: float, high: float) -> dict[str, Any]:
    return {
        f"xaxis{suffix}": {"type": "log", "domain": [low, high], "anchor": f"y{suffix}", "title": {"text": "", "standoff": 4},
                           "dtick": "D2", "automargin": True},
        f"yaxis{suffix}": {"anchor": f"x{suffix}", "rangemode": "tozero", "ticksuffix": " %", "nticks": 4, "fixedrange": True},
    }


PANEL = PanelSpec(
    name="latency", area="more", span=4, height=250, order=30,
    figure={
        "data": [{"type": "bar", "xaxis": "x", "yaxis": "y", "marker": {"line": {"width": 0}}},
                 {"type": "bar", "xaxis": "x2", "yaxis": "y2", "marker": {"line": {"width": 0}}}],
        "layout": {"margin": {"l": 36, "r": 8, "t": 6, "b": 34}, "showlegend": False, "bargap": 0,
                   **_axes("", 0.0, 0.45), **_axes("2", 0.56, 1.0)},
        "config": {},
    })
