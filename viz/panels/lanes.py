"""Lifecycle lanes: one chip a request, sliding from PENDING through PREFILLING and DECODING to FINISHED; plain elements, no figure."""

from viz.panels import PanelSpec

PANEL = PanelSpec(
    name="lanes", area="main", span=12, height=0, order=10, phone=True,
    # How many chips a lane shows before it counts the rest, and the step rate above which nothing is animated.
    options={"limits": {"pending": 24, "prefilling": 24, "decoding": 64, "finished": 10, "offloaded": 16}, "animate_below": 20},
)
