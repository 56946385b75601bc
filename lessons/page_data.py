"""What the browser gets of a lesson: its words as trees, its machinery, and how to run it live. JSON-ready."""

from __future__ import annotations

from typing import Any

from lessons.format import LANGUAGES, Lesson
from lessons.loader import recording_path
from lessons.scenario import live_form


def course_entry(lesson: Lesson) -> dict[str, Any]:
    """One line of the list of lessons."""
    return {"name": lesson.name, "number": lesson.number, "minutes": lesson.scenario["minutes"], "simulated": lesson.simulated,
            "steps": [step["id"] for step in lesson.steps], "recorded": recording_path(lesson).is_file(),
            "title": {language: lesson.texts[language].front["title"] for language in LANGUAGES},
            "summary": {language: lesson.texts[language].front["summary"] for language in LANGUAGES}}


def lesson_page(lesson: Lesson) -> dict[str, Any]:
    """The whole lesson in both languages, so that switching needs no request."""
    texts = {section.id: {} for section in lesson.texts[LANGUAGES[0]].sections}
    for language in LANGUAGES:
        for section in lesson.texts[language].sections:
            texts[section.id][language] = section.to_dict()
    return {**course_entry(lesson), "panels": lesson.scenario["panels"], "pace": lesson.scenario.get("pace", 4),
            "limits": lesson.scenario.get("limits", {}), "steps": lesson.steps, "score": lesson.scenario.get("score"),
            "texts": texts, "runs": {name: live_form(lesson, name) for name in lesson.runs}}
