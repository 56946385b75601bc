"""Why waiting: each request that was refused in this step, with the scheduler's own reason and numbers; plain elements."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="waiting", area="side", span=12, height=152, order=10, redraw_ms=80, options={"most": 12})
