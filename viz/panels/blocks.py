"""Block map: every block of the pool in a fixed place, in its owner's colour, filled as far as its tokens have arrived.

The figure is an empty frame without axes; the cells are painted on the canvas under it (see ``viz/static/figure.js``), which costs
the same for 16 blocks as for 100,000.
"""

from viz.panels import PanelSpec

FIGURE = {
    "data": [],
    "layout": {
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "xaxis": {"visible": False, "range": [0, 1], "fixedrange": True},
        "yaxis": {"visible": False, "range": [1, 0], "fixedrange": True},
    },
}

PANEL = PanelSpec(
    name="blocks", area="main", span=6, height=212, order=20, phone=True, figure=FIGURE,
    # From which cell edge (pixels) a block carries its fill, its owner's number and its share count; below `aggregate` pixels
    # one cell stands for several blocks.
    options={"fill_from": 5, "label_from": 20, "largest": 34, "aggregate": 3},
)
