"""The host memory that blocks of preempted requests wait in."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="swap_pool", area="more", span=4, height=112, order=41)
