"""Step composition: the query tokens of each recent step, stacked by what they were spent on, against ``max_batch_tokens``."""

from viz.panels import PanelSpec

FIGURE = {
    "data": [],
    "layout": {
        "margin": {"l": 34, "r": 0, "t": 16, "b": 4},
        "xaxis": {"visible": False, "fixedrange": True},
        "yaxis": {"zeroline": False, "fixedrange": True, "nticks": 4, "rangemode": "tozero", "tickformat": "~s", "range": [0, 256]},
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": 256, "y1": 256,
                    "line": {"width": 1.5, "dash": "dash"}}],
        "annotations": [{"xref": "paper", "x": 1, "xanchor": "right", "yref": "y", "y": 256, "yanchor": "bottom", "text": "max_batch_tokens",
                         "showarrow": False, "font": {"size": 11}}],
    },
}

PANEL = PanelSpec(name="composition", area="main", span=6, height=212, order=30, figure=FIGURE, options={"steps": 96})
