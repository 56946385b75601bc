"""Tokens per second and the number of requests over time: two charts above each other on one clock."""

from viz.panels import PanelSpec

_LINE = {"type": "scatter", "mode": "lines"}

PANEL = PanelSpec(
    name="throughput", area="more", span=4, height=250, order=31,
    figure={
        "data": [{**_LINE, "line": {"width": 1.75}, "yaxis": "y"}, {**_LINE, "line": {"width": 1.25}, "yaxis": "y"},
                 {**_LINE, "line": {"width": 1.75, "shape": "hv"}, "yaxis": "y2"},
                 {**_LINE, "line": {"width": 1.25, "shape": "hv"}, "yaxis": "y2"}],
        "layout": {"margin": {"l": 52, "r": 8, "t": 36, "b": 34}, "showlegend": True,
                   "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 10}},
                   "xaxis": {"title": {"text": "", "standoff": 4}, "anchor": "y2", "nticks": 8, "zeroline": False},
                   "yaxis": {"domain": [0.5, 1], "rangemode": "tozero", "nticks": 4, "title": {"text": "", "standoff": 4}},
                   "yaxis2": {"domain": [0, 0.4], "rangemode": "tozero", "nticks": 4, "title": {"text": "", "standoff": 4}},
                   "hovermode": "x unified"},
        "config": {},
    })
