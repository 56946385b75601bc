"""Request timeline: a row a request, from its arrival to its end: waiting, prefill slices, decode ticks, out and back, reset."""

from viz.panels import PanelSpec

FIGURE = {
    "data": [],
    "layout": {
        "margin": {"l": 52, "r": 8, "t": 2, "b": 20},
        "xaxis": {"showgrid": True, "zeroline": False, "fixedrange": True, "nticks": 8, "tickformat": ",d", "range": [0, 120]},
        "yaxis": {"visible": False, "fixedrange": True, "range": [1, 0]},
    },
}

PANEL = PanelSpec(
    name="timeline", area="main", span=12, height=196, order=40, figure=FIGURE,
    # The window in steps (least: of a short recording), how far it moves at once (ticks are redrawn only then), and the bounds of a row's height in pixels.
    options={"window": 120, "window_least": 20, "advance": 10, "row_most": 18, "row_least": 9},
)
