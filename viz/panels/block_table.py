"""Logical to physical blocks of one request."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="block_table", area="more", span=6, height=190, order=20, redraw_ms=80)
