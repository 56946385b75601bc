"""Every text exists in both languages with the same gaps to fill, and every text that a module asks for exists."""

from __future__ import annotations

import re

import pytest

from viz.page_head import STATIC, load_texts
from viz.panels import load_panels

TEXTS = load_texts()


#: Their English stands with the knobs and presets themselves, in the engine.
FROM_THE_ENGINE = ("knob.", "auto.", "preset.")


def test_both_languages_have_the_same_keys():
    assert {key for key in TEXTS["en"].keys() ^ TEXTS["ko"].keys() if not key.startswith(FROM_THE_ENGINE)} == set()


@pytest.mark.parametrize("language", list(TEXTS))
def test_no_text_is_empty(language):
    assert [key for key, text in TEXTS[language].items() if not text.strip()] == []


def test_translations_fill_the_same_gaps():
    gaps = {language: {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in texts.items()} for language, texts in TEXTS.items()}
    assert {key for key in gaps["en"] if gaps["en"][key] != gaps["ko"].get(key)} == set()


def test_every_panel_has_its_texts():
    for spec in load_panels():
        for part in ("title", "caption", "empty"):
            assert f"panel.{spec.name}.{part}" in TEXTS["en"], (spec.name, part)


def test_every_text_that_a_module_names_exists():
    """Keys that are put together at run time (`log.${key}`) are covered by the tests of those panels."""
    missing = set()
    for path in STATIC.rglob("*.js"):
        if "vendor" in path.parts or path.name == "i18n.js":
            continue
        source = path.read_text(encoding="utf-8")
        for key in re.findall(r"""\bt\(\s*'([a-z0-9_.]+)'""", source) + re.findall(r'data-t(?:-label|-placeholder)?="([a-z0-9_.]+)"', source):
            if key not in TEXTS["en"]:
                missing.add(f"{path.name}: {key}")
    assert missing == set()


def test_every_reason_and_cause_has_a_sentence():
    from engine.scheduler.reasons import Reason
    causes = ("admitted", "prompt_done", "stop", "length", "cancelled", "failed", "offload", "offload_self", "restore", "soft_reset",
              "soft_reset_self", "rebuild", "static_release")
    assert [key for key in (*(f"log.wait_{reason.value}" for reason in Reason), *(f"log.{cause}" for cause in causes)) if key not in TEXTS["en"]] == []
