"""What stands in the page's ``<head>``: local style sheets and scripts, and the data the browser modules start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.config import describe_knobs
from engine.sampling_params import BOUNDS, SamplingParams
from viz.panels import panel_specs

STATIC = Path(__file__).parent / "static"
TEXTS = Path(__file__).parent / "i18n"
LANGUAGES = ("en", "ko")


def load_texts() -> dict[str, dict[str, str]]:
    """Texts by language and key: ``i18n/<language>.json`` joined by every file in ``i18n/<language>/``.

    Raises :class:`ValueError` when two files define one key.
    """
    texts: dict[str, dict[str, str]] = {}
    for language in LANGUAGES:
        merged: dict[str, str] = {}
        for path in [TEXTS / f"{language}.json", *sorted((TEXTS / language).glob("*.json"))]:
            part = json.loads(path.read_text(encoding="utf-8"))
            doubled = merged.keys() & part.keys()
            if doubled:
                raise ValueError(f"{path.name} ({language}) defines texts again: {', '.join(sorted(doubled))}")
            merged.update(part)
        texts[language] = merged
    return texts


def page_data() -> dict[str, Any]:
    """Everything the browser needs before the first message: panels, knobs, sampling defaults and bounds, texts."""
    return {
        "panels": panel_specs(),
        "knobs": describe_knobs(),
        "sampling": {"defaults": SamplingParams().to_dict(), "bounds": BOUNDS},
        "texts": load_texts(),
    }


def style_sheets() -> list[str]:
    """Names of the style sheets under ``viz/static/css``, in the order they are linked: the number in front decides."""
    return sorted(path.name for path in (STATIC / "css").glob("*.css"))


def head() -> str:
    """The markup for ``<head>``. Every address is relative, so the page works under any mount point and asks no other origin."""
    # "<" is escaped so that no text inside the data can end the script element.
    data = json.dumps(page_data(), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    links = "\n".join(f'<link rel="stylesheet" href="viz/css/{name}">' for name in style_sheets())
    return f"""{links}
<script type="application/json" id="bs-data">{data}</script>
<script defer src="viz/vendor/plotly-cartesian.min.js"></script>
<script type="module" src="viz/main.js"></script>
<link rel="icon" type="image/svg+xml" href="viz/icon.svg">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
