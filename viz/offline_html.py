"""One HTML file that replays a recording by double click: no server, no engine, no network.

Browsers refuse to load module files beside a page opened from ``file://``, so everything is inside the page. Each ES module
becomes a ``data:`` address under a bare name (``batchscope/store.js``) in an *import map*, and the relative imports inside the
modules are rewritten to those bare names; the modules themselves stay as they are, and no bundler is needed. (Import maps:
Chrome 89, Firefox 108, Safari 16.4.) Plotly is a classic script, also as a ``data:`` address.

What comes from a recording is only ever present as base64, so no text in it can end a script element or become markup. A content
security policy forbids the page every request.
"""

from __future__ import annotations

import base64
import html
import io
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from viz.page_head import STATIC, page_data, style_sheets
from viz.recording import Recording, save_recording

ENTRY = "offline.js"
PREFIX = "batchscope/"
PLOTLY = "vendor/plotly-cartesian.min.js"
#: ``from './x.js'`` and ``import './x.js'``; a dynamic ``import(`./panels/${name}.js`)`` has no fixed target and is served by ``loadPanel``.
_IMPORT = re.compile(r"""(\bfrom\s+|\bimport\s+)(['"])(\.{1,2}/[^'"]+)\2""")

_POLICY = "; ".join((
    "default-src 'none'", "script-src 'unsafe-inline' data:", "style-src 'unsafe-inline'", "img-src data: blob:", "font-src data:",
    "connect-src 'none'", "base-uri 'none'", "form-action 'none'"))


def offline_html(recording: Recording) -> str:
    """The whole page as text. Raises :class:`OSError` when a module of the page is missing."""
    data = page_data()
    title = html.escape(str(recording.header.get("title") or recording.header.get("model") or "recording")[:120])
    modules = collect_modules(ENTRY, [f"panels/{name}.js" for name in data["panels"]])
    imports = {PREFIX + name: _data_address("text/javascript", text) for name, text in modules.items()}
    packed = io.BytesIO()
    save_recording(packed, recording)
    styles = "\n".join((STATIC / "css" / name).read_text(encoding="utf-8") for name in style_sheets())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Batchscope recording</title>
<style>
{_in_style(styles)}
</style>
<script type="importmap">{_in_script({"imports": imports})}</script>
<script src="{_data_address("text/javascript", (STATIC / PLOTLY).read_text(encoding="utf-8"))}"></script>
<script type="application/json" id="bs-data">{_in_script(data)}</script>
<script type="text/plain" id="bs-recording">{base64.b64encode(packed.getvalue()).decode()}</script>
</head>
<body class="bs-offline-page">
<header class="bs-root bs-offline-bar" id="bs-offline-bar"><strong>Batchscope</strong><span data-tools></span></header>
<main class="bs-root" id="bs-offline"></main>
<script type="module">import "{PREFIX}{ENTRY}";</script>
</body>
</html>
"""


def collect_modules(entry: str, more: list[str]) -> dict[str, str]:
    """``entry``, ``more`` and everything they import, by path under ``viz/static``, with imports rewritten to bare names."""
    found: dict[str, str] = {}
    wanted = [entry, *more]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        source = _module_path(name).read_text(encoding="utf-8")
        found[name] = _IMPORT.sub(lambda match, name=name: f"{match[1]}{match[2]}{PREFIX}{_resolve(name, match[3])}{match[2]}", source)
        wanted.extend(_resolve(name, match[3]) for match in _IMPORT.finditer(source))
    return found


def _module_path(name: str) -> Path:
    path = (STATIC / name).resolve()
    if not path.is_relative_to(STATIC.resolve()):
        raise FileNotFoundError(f"{name} lies outside of the page's modules")
    return path


def _resolve(importer: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), target))


def _data_address(kind: str, text: str) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def _in_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _in_style(text: str) -> str:
    return text.replace("</", "<\\/")
