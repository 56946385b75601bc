"""Refuses broken lessons with a sentence that names file and line. What may stand in a lesson is told in ``lessons/README.md``.

``python -m lessons.validator [NAME…]`` prints every problem of the named lessons (all without a name) and exits 1 when there is one.
"""

from __future__ import annotations

import sys
from typing import Any

from lessons import format as f
from lessons.findings import SCENARIO
from lessons.loader import HOME, lesson_names, load_glossary, load_lesson
from lessons.validate_scenario import ScenarioChecks
from lessons.validate_texts import TextChecks


def validate(lesson: f.Lesson, glossary: dict[str, Any] | None = None) -> list[f.Problem]:
    """Every problem of a loaded lesson; empty when it is sound."""
    return _Validator(lesson, load_glossary() if glossary is None else glossary).run()


class _Validator(ScenarioChecks, TextChecks):
    def run(self) -> list[f.Problem]:
        if self.fields(SCENARIO, (), self.lesson.scenario, f.SCENARIO_FIELDS, ("number", "minutes", "device", "panels", "runs", "steps")):
            self.head()
            runs = self.lesson.scenario["runs"]
            if not isinstance(runs, dict) or not 0 < len(runs) <= f.MAX_RUNS or not all(isinstance(run, dict) for run in runs.values()):
                self.say(SCENARIO, ("runs",), f"runs must be an object with 1 to {f.MAX_RUNS} runs.")
            elif self.steps_are_a_list():
                for name in runs:
                    self.a_run(name, runs[name])
                self.steps()
                self.figures()
                self.texts()
                self.checks()
        return sorted(self.problems, key=lambda problem: (problem.file, problem.line))


def main(arguments: list[str]) -> int:
    from lessons.loader import find_lesson
    try:
        names = [find_lesson(name) for name in arguments] or lesson_names()
    except KeyError as error:
        print(error.args[0])
        return 1
    problems = []
    for name in names:
        try:
            found = validate(load_lesson(name))
        except f.LessonBroken as error:
            found = error.problems
        problems += [f"{HOME.name}/{name}/{problem}" for problem in found]
    print("\n".join(problems) or f"{len(names)} lessons, no problem.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
