"""Answers as they stream: the text of each running request, newest words in view; plain elements, shown as text only."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="answers", area="side", span=12, height=404, order=20, redraw_ms=80, phone=True, options={"most": 24})
