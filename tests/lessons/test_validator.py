"""Every kind of broken lesson is refused with a sentence that names the file, the line and what to do."""

from __future__ import annotations

import os

import pytest

from lessons.format import MAX_FILE_BYTES
from lessons.loader import load_course
from lessons.located_json import JsonError, load_located
from lessons.validator import validate

S, C, EN, KO = "scenario.json", "checks.json", "lesson.en.md", "lesson.ko.md"


def scenario(change):
    return lambda lesson: lesson.edit(S, change)


def checks(change):
    return lambda lesson: lesson.edit(C, change)


def text(file, old, new):
    return lambda lesson: lesson.replace(file, old, new)


def put(path, value):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value
    return change


def drop(*path):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]
    return change


KINDS = {
    "a file is missing": (lambda lesson: (lesson.folder / KO).unlink(), KO, "is missing"),
    "a file is a link": (lambda lesson: ((lesson.folder / KO).unlink(), os.symlink(lesson.folder / EN, lesson.folder / KO)), KO, "plain file"),
    "a file is huge": (lambda lesson: (lesson.folder / EN).write_text("x" * (MAX_FILE_BYTES + 1)), EN, "larger"),
    "a file is no text": (lambda lesson: (lesson.folder / EN).write_bytes(b"---\xff"), EN, "not UTF-8"),
    "a scenario is not JSON": (text(S, '"number": 3,', '"number": 3'), S, "comma"),
    "a name stands twice": (text(S, '"number": 3,', '"number": 3, "number": 4,'), S, "twice"),
    "an unknown field": (scenario(put(["colour"], "red")), S, "no field \"colour\""),
    "a missing field": (scenario(drop("minutes")), S, "\"minutes\" is missing"),
    "too long a lesson": (scenario(put(["minutes"], 45)), S, "between 5 and 10"),
    "the wrong number": (scenario(put(["number"], 8)), S, "number must be that of the folder"),
    "an unknown device": (scenario(put(["device"], "simulated:abacus")), S, "device must be"),
    "an unknown panel": (scenario(put(["panels", 0], "teapot")), S, "no panel \"teapot\""),
    "an unknown knob": (scenario(put(["runs", "static", "config", "turbo"], True)), S, "no knob named 'turbo'"),
    "a knob out of bounds": (scenario(put(["runs", "static", "config", "block_size"], 1)), S, "block_size must lie between"),
    "a run without requests": (scenario(drop("runs", "static", "requests")), S, "needs either requests or a workload"),
    "a request that cannot be": (scenario(put(["runs", "static", "requests", 0, "count"], -1)), S, "whole numbers"),
    "a run like one that is not there": (scenario(put(["runs", "continuous", "like"], "nobody")), S, "like must name another run"),
    "a step without its run": (scenario(put(["steps", 0, "run"], "nobody")), S, "no run named \"nobody\""),
    "a step id twice": (scenario(put(["steps", 1, "id"], "guess")), S, "is taken by a step above"),
    "pointing at a panel that is not shown": (scenario(put(["steps", 0, "points_at"], "swap_pool")), S, "not among the lesson's panels"),
    "a predicate that is no expression": (scenario(put(["steps", 1, "advance"], "step >=")), S, "not a complete expression"),
    "a predicate over an unknown name": (scenario(put(["steps", 1, "advance"], "sleepy >= 1")), S, "'sleepy' is no metric"),
    "code in a predicate": (scenario(put(["steps", 1, "advance"], "__import__('os')")), S, "no such function"),
    "waiting for an answer that nobody asks": (scenario(put(["steps", 1, "advance"], "answered")), S, "asks nothing"),
    "a prediction without a question": (scenario(drop("steps", 0, "question")), S, "a prediction needs a question"),
    "a question of no kind": (scenario(put(["steps", 0, "question", "type"], "essay")), S, "choice or number"),
    "an answer over an unknown metric": (scenario(put(["steps", 0, "question", "answer"], "static.happiness")), S, "'happiness' is no metric"),
    "no challenge at the end": (scenario(lambda s: s["steps"].pop()), S, "no step of kind challenge"),
    "steps in the wrong order": (scenario(lambda s: s["steps"].reverse()), S, "in this order"),
    "a solution that is not offered": (scenario(put(["steps", 5, "challenge", "solution"], {"max_requests_per_batch": 99})), S, "does not offer"),
    "a figure of an unknown run": (scenario(put(["figures", "before", "run"], "nobody")), S, "no run named \"nobody\" to draw"),
    "no front matter": (text(EN, "---\ntitle", "title"), EN, "front matter"),
    "a heading without an id": (text(EN, "## guess | ", "## "), EN, "'## step_id | Title'"),
    "a step that only one language has": (text(KO, "## rebuilt |", "## rebuild |"), KO, "does not stand in scenario.json"),
    "a question without words": (text(KO, "? 그러면 네 요청을", "그러면 네 요청을"), KO, "no words here"),
    "one choice too few": (text(KO, "- 거의 그대로다\n", ""), KO, "choices here"),
    "no explanation after the answer": (text(EN, "> {{continuous.steps}} steps.", "{{continuous.steps}} steps."), EN, "no explanation"),
    "an unknown term": (text(EN, "[[continuous_batching]]", "[[magic]]"), EN, "no term 'magic'"),
    "an unknown figure": (text(EN, "!figure before", "!figure beside"), EN, "no figure \"beside\""),
    "an unknown format": (text(EN, "{{static.itl_p50 | ms}}", "{{static.itl_p50 | weeks}}"), EN, "no format 'weeks'"),
    "a number that one language lacks": (text(KO, "{{static.itl_p50 | ms}}", "6 ms"), KO, "differ in their numbers"),
    "a mark that is not closed": (text(EN, "[[continuous_batching]]", "[[continuous_batching"), EN, "not closed"),
    "a claim without its sentence": (checks(put([0, "sentence", "en"], "Not a word of this.")), C, "does not stand in the step"),
    "a claim with a strange comparison": (checks(put([0, "is"], "kind of")), C, "\"is\" must be one of"),
    "a claim named twice": (checks(put([1, "id"], "static_steps")), C, "is named twice"),
    "a claim in no step": (checks(put([0, "step"], "nowhere")), C, "no step \"nowhere\""),
    "no claim at all": (checks(lambda document: document.clear()), C, "at least one claim"),
}


def test_the_sample_is_sound(lesson):
    assert lesson.problems() == []


@pytest.mark.parametrize("kind", KINDS)
def test_is_refused(lesson, kind):
    spoil, file, words = KINDS[kind]
    spoil(lesson)
    problems = lesson.problems()
    assert any(problem.file == file and problem.line >= 1 and words in problem.message for problem in problems), [str(problem) for problem in problems]


def test_a_message_names_the_line_of_the_mistake(lesson):
    lesson.replace(S, '"block_size": 16, "num_blocks": 64', '"block_size": 1, "num_blocks": 64')
    lines = (lesson.folder / S).read_text(encoding="utf-8").splitlines()
    wrong = next(number for number, line in enumerate(lines, 1) if '"block_size": 1,' in line)
    assert any(problem.line == wrong for problem in lesson.problems())


def test_every_lesson_of_the_course_is_sound():
    for lesson in load_course():
        assert [str(problem) for problem in validate(lesson)] == []


def test_a_bomb_of_brackets_is_refused_without_recursing():
    with pytest.raises(JsonError):
        load_located("[" * 100_000)
