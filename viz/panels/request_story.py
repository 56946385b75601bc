"""The whole life of one request in sentences."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="request_story", area="more", span=6, height=260, order=11, redraw_ms=80, phone=True)
