"""The prefixes that the cache knows, with their hits."""

from viz.panels import PanelSpec

PANEL = PanelSpec(name="prefix_tree", area="more", span=8, height=190, order=40)
