"""Every decision of the engine as a sentence."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="decision_log", area="more", span=6, height=260, order=10, redraw_ms=80)
