"""Recent steps as dots under the roof of the machine: achieved FLOP/s over FLOP per byte, both axes logarithmic."""

from viz.panels import PanelSpec

_DOTS = {"type": "scatter", "mode": "markers", "hovertemplate": "%{text}<extra></extra>"}

PANEL = PanelSpec(
    name="roofline", area="more", span=4, height=250, order=32,
    figure={
        "data": [{"type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": {"width": 2}},
                 {**_DOTS, "marker": {"size": 6, "symbol": "circle", "opacity": 0.6}},
                 {**_DOTS, "marker": {"size": 7, "symbol": "diamond", "opacity": 0.6}}],
        "layout": {"margin": {"l": 58, "r": 8, "t": 6, "b": 34}, "showlegend": True,
                   "legend": {"orientation": "h", "x": 0, "y": 1.16, "font": {"size": 10}},
                   "xaxis": {"type": "log", "title": {"text": "", "standoff": 4}, "dtick": 1},
                   "yaxis": {"type": "log", "title": {"text": "", "standoff": 4}, "dtick": 1, "exponentformat": "SI"}},
        "config": {},
    })
