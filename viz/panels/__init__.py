"""The registry of panels: one module here, one class in ``viz/static/panels/``, joined by the panel's name.

A module ``viz/panels/<name>.py`` defines ``PANEL = PanelSpec(name="<name>", ...)``; the registry finds it by itself. The
browser imports ``/viz/panels/<name>.js`` and hands it the spec. Texts are found under ``panel.<name>.title``,
``.caption``, ``.empty`` and ``.about`` in ``viz/i18n``.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import asdict, dataclass
from typing import Any

AREAS = ("main", "side", "more")


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """Where a panel stands and which figure it draws into.

    ``area`` is ``main`` (middle column), ``side`` (right column) or ``more`` (below, a twelve-column grid over the full
    width). ``span`` counts twelfths of the area's width on a desktop; ``height`` is the body's height in pixels, 0 for as tall
    as its content. ``order`` sorts within the area. ``shown`` is the state before a person chooses; ``phone`` tells whether
    the panel starts open on a phone. ``figure`` is a Plotly figure (``data``, ``layout``, ``config``) that
    the browser completes with colours and live data, or ``None`` for a panel of plain elements. ``redraw_ms`` is for
    panels that are read rather than watched: while events stream in they are drawn at most once in so many milliseconds (the last
    state always is). ``options`` reaches the class unchanged.
    """

    name: str
    area: str = "more"
    span: int = 6
    height: int = 220
    order: int = 100
    shown: bool = True
    phone: bool = False
    redraw_ms: int = 0
    figure: dict[str, Any] | None = None
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.area not in AREAS:
            raise ValueError(f"panel {self.name}: area must be one of {', '.join(AREAS)}, not {self.area!r}")
        if not 1 <= self.span <= 12:
            raise ValueError(f"panel {self.name}: span must lie between 1 and 12, not {self.span}")


def load_panels() -> list[PanelSpec]:
    """All panels of this package, sorted by area and order. Raises :class:`ValueError` for a module without a matching spec."""
    specs = []
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name.startswith("_"):
            continue
        spec = getattr(importlib.import_module(f"{__name__}.{module_info.name}"), "PANEL", None)
        if not isinstance(spec, PanelSpec) or spec.name != module_info.name:
            raise ValueError(f"viz/panels/{module_info.name}.py must define PANEL = PanelSpec(name={module_info.name!r}, ...)")
        specs.append(spec)
    return sorted(specs, key=lambda spec: (AREAS.index(spec.area), spec.order, spec.name))


def panel_specs() -> dict[str, dict[str, Any]]:
    """The registry as JSON-ready values by name, in display order: what the page embeds for the browser."""
    return {spec.name: asdict(spec) for spec in load_panels()}
