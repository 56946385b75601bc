"""The page: a Gradio ``Blocks`` of four tabs whose live parts are drawn in the browser from the websocket.

Gradio gives the shell, the prompt form and the theme; everything that moves is an ES module under ``viz/static`` mounted
into ``gr.HTML`` hosts. No handler here runs in Python: the ``js=`` handlers call ``window.batchscope``, which sends commands
over the websocket, so a click costs no round trip through the queue.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from viz.page_ask import build_ask_form
from viz.page_head import LANGUAGES, head, load_texts

TITLE = "Batchscope"
TABS = ("live", "compare", "lessons", "recordings")


def host(name: str, *, label: str) -> gr.HTML:
    """An empty element that the browser module of this name fills; ``label`` is read while it has not."""
    return gr.HTML(
        value=f'<div class="bs-root bs-host" id="bs-{name}"><p class="bs-loading">{label}</p></div>',
        js_on_load=f"import(new URL('viz/main.js', document.baseURI)).then((page) => page.attach('{name}', element));",
        elem_id=f"bs-host-{name}", padding=False, container=False, apply_default_css=False)


def build_page() -> gr.Blocks:
    """The whole page. Serve it with :func:`mount_arguments` and the files of ``viz/static`` under ``/viz``."""
    text = load_texts()["en"]
    with gr.Blocks(title=TITLE, fill_width=True, analytics_enabled=False) as page:
        host("header", label=TITLE)
        with gr.Tabs(elem_id="bs-tabs"):
            with gr.Tab(text["tab.live"], id="live", elem_id="bs-tab-live"):
                host("transport", label=text["page.loading"])
                with gr.Row(elem_id="bs-live-row"):
                    with gr.Column(elem_id="bs-forms", scale=0, min_width=0):
                        build_ask_form(text)
                        host("controls", label=text["page.loading"])
                    with gr.Column(elem_id="bs-stage", min_width=0):
                        host("live", label=text["page.loading"])
            for name in TABS[1:]:
                with gr.Tab(text[f"tab.{name}"], id=name, elem_id=f"bs-tab-{name}"):
                    host(name, label=text["page.loading"])
    return page


def build_theme() -> gr.themes.Base:
    """A quiet neutral theme with one accent and the fonts that the machine has: nothing is fetched from anywhere."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.blue, neutral_hue=gr.themes.colors.slate,
        font=("Inter", "Pretendard", "Noto Sans KR", "system-ui", "sans-serif"),
        font_mono=("JetBrains Mono", "ui-monospace", "SFMono-Regular", "Menlo", "monospace"),
        radius_size=gr.themes.sizes.radius_sm, spacing_size=gr.themes.sizes.spacing_sm, text_size=gr.themes.sizes.text_sm)


def mount_arguments() -> dict[str, Any]:
    """Keyword arguments for ``gr.mount_gradio_app``: theme, head, and server-side rendering off (its proxy has no websocket)."""
    return {"theme": build_theme(), "head": head(), "ssr_mode": False, "footer_links": [], "show_error": False}


__all__ = ["LANGUAGES", "TABS", "TITLE", "build_page", "build_theme", "mount_arguments"]
