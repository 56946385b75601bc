"""The page as data: panels, texts, knobs, and that nothing on it points to another origin."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import gradio as gr
import pytest

from engine.config import EngineConfig, describe_knobs
from engine.presets import PRESETS
from engine.sampling_params import SamplingParams
from engine.scheduler.reasons import Reason
from viz.page import TABS, build_page, mount_arguments
from viz.page_ask import FIELDS
from viz.page_head import LANGUAGES, STATIC, head, load_texts, page_data, style_sheets
from viz.panels import AREAS, PanelSpec, load_panels, panel_specs

TEXTS = load_texts()
SOURCES = [path for path in STATIC.rglob("*.js") if "vendor" not in path.parts]
MAIN_PANELS = {"lanes", "blocks", "composition", "timeline", "waiting", "answers"}
#: English stands in the code's own metadata, next to what it describes; only other languages need these keys.
FROM_METADATA = ("knob.", "auto.", "preset.")


@pytest.mark.parametrize("spec", load_panels(), ids=lambda spec: spec.name)
def test_each_panel_has_a_class_a_place_and_all_its_texts(spec: PanelSpec):
    source = (STATIC / "panels" / f"{spec.name}.js").read_text("utf-8")
    assert re.search(r"export default class", source)
    for method in ("update(", "describe("):
        assert method in source, f"{spec.name}.js has no {method})"
    assert spec.area in AREAS
    for language in LANGUAGES:
        for part in ("title", "caption", "empty"):
            assert TEXTS[language].get(f"panel.{spec.name}.{part}"), f"panel.{spec.name}.{part} ({language})"


def test_every_class_in_the_browser_has_its_spec():
    assert {path.stem for path in (STATIC / "panels").glob("*.js")} == set(panel_specs())
    assert set(panel_specs()) >= MAIN_PANELS


def test_specs_are_plain_json_and_no_figure_shares_an_axis_object():
    json.dumps(panel_specs())
    for spec in load_panels():
        axes = [value for name, value in ((spec.figure or {}).get("layout") or {}).items() if name.startswith(("xaxis", "yaxis"))]
        assert len({id(axis) for axis in axes}) == len(axes), spec.name


def test_a_spec_in_no_area_is_refused():
    with pytest.raises(ValueError, match="area"):
        PanelSpec(name="lost", area="cellar")
    with pytest.raises(ValueError, match="span"):
        PanelSpec(name="wide", span=13)


def test_both_languages_have_the_same_texts():
    korean = {key for key in TEXTS["ko"] if not key.startswith(FROM_METADATA)}
    assert korean == {key for key in TEXTS["en"] if not key.startswith(FROM_METADATA)}


def test_texts_have_the_same_places_to_fill_in_both_languages():
    places = {language: {key: sorted(set(re.findall(r"\{(\w+)\}", text))) for key, text in texts.items()} for language, texts in TEXTS.items()}
    different = {key for key in places["en"] if key in places["ko"] and places["en"][key] != places["ko"][key]}
    # Korean leaves out what only English grammar needs (a plural, an article), so it may name fewer places, never others.
    assert {key for key in different if not set(places["ko"][key]) <= set(places["en"][key])} == set()


def test_korean_texts_are_korean():
    same = {key for key, text in TEXTS["ko"].items()
            if TEXTS["en"].get(key) == text and len(re.findall(r"[a-z]{4,}", re.sub(r"\{\w+\}", "", text))) > 2}
    assert {key for key in same if not key.startswith("example.")} == set()


def test_each_knob_preset_and_reason_is_explained_in_korean():
    for knob in describe_knobs():
        assert TEXTS["ko"].get(f"knob.{knob['name']}"), knob["name"]
    for key in PRESETS:
        assert TEXTS["ko"].get(f"preset.{key}.title") and TEXTS["ko"].get(f"preset.{key}.help"), key
    for reason in Reason:
        for language in LANGUAGES:
            assert TEXTS[language].get(f"reason.{reason.value}") and TEXTS[language].get(f"term.reason.{reason.value}"), reason


def test_every_text_that_the_scripts_ask_for_exists():
    asked = {}
    for path in SOURCES:
        text = path.read_text("utf-8")
        for key in re.findall(r"""(?<![\w.])t\(\s*'([a-z0-9_]+\.[a-z0-9_.-]+)'""", text) + re.findall(r'data-t(?:-label|-placeholder)?="([a-z0-9_.-]+)"', text):
            asked.setdefault(key, path.name)
    assert asked and {key: name for key, name in asked.items() if key not in TEXTS["en"]} == {}


def test_the_form_knows_every_knob_of_the_engine():
    assert [knob["name"] for knob in page_data()["knobs"]] == [item.name for item in dataclasses.fields(EngineConfig)]


def test_the_prompt_form_and_the_script_name_the_same_fields_in_the_same_order():
    script = (STATIC / "ask.js").read_text("utf-8")
    names = re.search(r"const FIELDS = \[([^\]]*)\]", script).group(1)
    assert tuple(re.findall(r"'(\w+)'", names)) == FIELDS
    assert set(FIELDS) - {"prompt", "mode"} <= {item.name for item in dataclasses.fields(SamplingParams)}


def test_the_page_is_one_gradio_app_of_four_tabs_without_a_python_handler():
    page = build_page()
    assert isinstance(page, gr.Blocks)
    tabs = [block for block in page.blocks.values() if isinstance(block, gr.Tab)]
    assert [tab.id for tab in tabs] == list(TABS)
    # Everything goes over the websocket: a handler in Python would be a second way in, past roles and limits.
    assert [dependency for dependency in page.config["dependencies"] if dependency["backend_fn"]] == []


def test_data_in_the_head_cannot_end_its_element():
    text = head()
    data = re.search(r'id="bs-data">(.*?)</script>', text, re.S).group(1)
    assert "<" not in data
    assert json.loads(data)["panels"].keys() == panel_specs().keys()


def test_nothing_on_the_page_points_to_another_origin():
    outside = re.compile(r"""(?:src|href)=["'](?:https?:)?//|url\(["']?(?:https?:)?//|@import|import\s*\(?["']https?:""")
    assert not outside.search(head())
    for path in [*SOURCES, *(STATIC / "css").glob("*.css")]:
        assert not outside.search(path.read_text("utf-8")), path.name
    assert mount_arguments()["ssr_mode"] is False


def test_style_sheets_are_linked_in_the_order_of_their_numbers():
    assert style_sheets() == sorted(style_sheets()) and style_sheets()[0].startswith("00-")
    positions = [head().index(name) for name in style_sheets()]
    assert positions == sorted(positions)


def test_vendored_code_comes_with_its_licence():
    vendor = STATIC / "vendor"
    assert (vendor / "plotly-cartesian.min.js").stat().st_size > 1_000_000
    assert "MIT" in (vendor / "plotly-cartesian.LICENSE.txt").read_text()
    assert (Path(__file__).parents[1] / "e2e" / "vendor" / "axe.LICENSE.txt").exists()
