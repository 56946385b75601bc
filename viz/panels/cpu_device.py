"""CPU and device intervals of the newest steps, on a canvas: two lanes need no axes of Plotly's."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="cpu_device", area="more", span=6, height=112, order=21)
