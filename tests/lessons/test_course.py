"""One test a lesson: its scenario runs on the engine, every step can be reached, every claim of the text holds."""

from __future__ import annotations

import pytest

from lessons.check import check_advances, check_challenges, check_claims, check_questions
from lessons.format import KINDS, LANGUAGES
from lessons.loader import lesson_names, load_glossary, load_lesson

NAMES = lesson_names()


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_true(name, runner):
    lesson = load_lesson(name)
    runs = runner.run_all(lesson)
    metrics = {run: result.metrics for run, result in runs.items()}
    for run, result in runs.items():
        assert result.metrics["failed"] == 0
        assert result.metrics["simulated"] == lesson.device_of(run).startswith("simulated:")
    verdicts = check_claims(lesson, metrics) + check_questions(lesson, metrics) + check_advances(lesson, runs) + check_challenges(lesson, runs, runner)
    assert [f"{verdict.name}: {verdict.text}" for verdict in verdicts if not verdict.holds] == []
    assert len(verdicts) >= len(lesson.steps) + len(lesson.checks)


def test_the_course_has_its_sixteen_lessons_in_order():
    lessons = [load_lesson(name) for name in NAMES]
    assert [lesson.number for lesson in lessons] == list(range(1, 17))
    for lesson in lessons:
        assert {step["kind"] for step in lesson.steps} == set(KINDS)
        assert len(lesson.checks) >= 5


def test_the_figures_everybody_knows_are_claimed_exactly():
    claims = {check["id"]: (check["is"], check["value"]) for check in load_lesson(NAMES[2]).checks}
    assert claims["static_steps"] == ("==", 11) and claims["static_holes"] == ("==", 7)
    assert claims["continuous_steps"] == ("==", 8) and claims["continuous_holes"] == ("==", 1)


def test_both_languages_say_every_term():
    glossary = load_glossary()
    used = {term for name in NAMES for language in LANGUAGES for _, term in load_lesson(name).texts[language].terms}
    assert used <= set(glossary)
    for entry in glossary.values():
        for language in LANGUAGES:
            assert entry[language]["term"] and entry[language]["text"].endswith(".")


def test_the_panels_that_lessons_point_at_exist():
    from lessons.format import PANELS
    from viz.panels import panel_specs
    assert set(PANELS) <= set(panel_specs())


def test_a_false_claim_fails(runner):
    lesson = load_lesson(NAMES[2])
    metrics = {run: runner.run(lesson, run).metrics for run in ("static", "continuous")}
    lesson.checks = [{**lesson.checks[0], "value": 12}]
    verdict, = check_claims(lesson, metrics)
    assert not verdict.holds and "11" in verdict.text
