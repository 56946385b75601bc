"""``python -m lessons.check [NAME…]``: run the scenarios on the engine and hold every claim of the texts against them.

Prints a line per claim with its measured number, then ``N lessons, M claims hold``; exits 1 when a claim doesn't, a question
has no right answer, a challenge can't be met, or a lesson is broken.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from lessons.expression import Expression, ExpressionError, compare
from lessons.format import Lesson, LessonBroken
from lessons.loader import find_lesson, lesson_names, load_lesson
from lessons.runner import Run, Runner
from lessons.validator import validate
from lessons.values import format_value


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one claim holds, and the line that says so."""

    name: str
    holds: bool
    text: str


def check_claims(lesson: Lesson, metrics: dict[str, dict[str, Any]]) -> list[Verdict]:
    """Every claim of ``checks.json`` against the measured ``metrics`` of the runs."""
    verdicts = []
    for check in lesson.checks:
        try:
            measured = Expression(check["measure"]).evaluate(metrics)
            expected = Expression(check["value"]).evaluate(metrics) if isinstance(check["value"], str) else check["value"]
            holds = _holds(measured, check["is"], expected, check.get("tolerance", 0))
            shown = f"{format_value(measured, check.get('format', ''))} {_words(check, expected)}"
        except ExpressionError as error:
            holds, shown = False, str(error)
        verdicts.append(Verdict(check["id"], holds, f"{check['measure']} = {shown}"))
    return verdicts


def _holds(measured: Any, operator: str, expected: Any, tolerance: float) -> bool:
    if operator == "~":
        return abs(measured - expected) <= tolerance * abs(expected)
    return compare(measured, operator, expected)


def _words(check: dict[str, Any], expected: Any) -> str:
    value = format_value(expected, check.get("format", ""))
    if check["is"] == "~":
        return f"(claimed: {value} within {check['tolerance'] * 100:g} %)"
    return f"(claimed: {check['is']} {value})"


def check_questions(lesson: Lesson, metrics: dict[str, dict[str, Any]]) -> list[Verdict]:
    """Every question has exactly one right choice, or a number for its answer."""
    verdicts = []
    for step in lesson.steps:
        question = step.get("question")
        if question is None:
            continue
        try:
            if question["type"] == "choice":
                right = [index + 1 for index, choice in enumerate(question["choices"]) if Expression(choice).evaluate(metrics) is True]
                holds, text = len(right) == 1, f"right choice: {right or 'none'}"
            else:
                answer = Expression(question["answer"]).evaluate(metrics)
                holds, text = isinstance(answer, (int, float)), f"answer: {format_value(answer)}"
        except ExpressionError as error:
            holds, text = False, str(error)
        verdicts.append(Verdict(f"{step['id']}?", holds, text))
    return verdicts


def check_challenges(lesson: Lesson, runs: dict[str, Run], runner: Runner) -> list[Verdict]:
    """Every challenge is missed with the config it starts from, and met with its solution."""
    verdicts = []
    for step in lesson.steps:
        challenge = step.get("challenge")
        if challenge is None:
            continue
        metrics = {name: run.metrics for name, run in runs.items()}
        goal = Expression(challenge["goal"])
        try:
            before = goal.evaluate({**metrics, "mine": metrics[challenge["run"]]})
            mine = runner.run(lesson, challenge["run"], challenge["solution"]).metrics
            after = goal.evaluate({**metrics, "mine": mine})
            holds = before is False and after is True
            text = f"{challenge['goal']}: {before} at first, {after} with {challenge['solution']}"
        except ExpressionError as error:
            holds, text = False, str(error)
        verdicts.append(Verdict(f"{step['id']}!", holds, text))
    return verdicts


def check_advances(lesson: Lesson, runs: dict[str, Run]) -> list[Verdict]:
    """Every step can be left: its predicate comes true somewhere in the run it watches."""
    from lessons.advance import first_advance
    verdicts = []
    for step in lesson.steps:
        try:
            at = first_advance(step, runs[step["run"]], lesson.scenario.get("limits", {}))
            holds, text = at is not None, f"goes on at step {at}" if at is not None else f"never: {step['advance']}"
        except ExpressionError as error:
            holds, text = False, str(error)
        verdicts.append(Verdict(f"{step['id']}→", holds, text))
    return verdicts


def check_lesson(name: str, runner: Runner) -> tuple[list[Verdict], list[Verdict]]:
    """(claims, everything else that must hold) of one lesson. Raises :class:`LessonBroken`."""
    lesson = load_lesson(name)
    problems = validate(lesson)
    if problems:
        raise LessonBroken(problems)
    runs = runner.run_all(lesson)
    metrics = {run: result.metrics for run, result in runs.items()}
    others = check_questions(lesson, metrics) + check_advances(lesson, runs) + check_challenges(lesson, runs, runner)
    return check_claims(lesson, metrics), others


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lessons.check", description="Run the lessons' scenarios and check every claim.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a lesson's folder, slug or number; all without a name")
    try:
        names = [find_lesson(name) for name in parser.parse_args(arguments).names] or lesson_names()
    except KeyError as error:
        print(error.args[0])
        return 1
    runner, held, failed = Runner(), 0, 0
    for name in names:
        print(name)
        try:
            claims, others = check_lesson(name, runner)
        except LessonBroken as error:
            print("\n".join(f"  ✗ {problem}" for problem in error.problems))
            failed += 1
            continue
        for verdict in claims:
            print(f"  {'✓' if verdict.holds else '✗'} {verdict.name:24} {verdict.text}")
        for verdict in others:
            if not verdict.holds:
                print(f"  ✗ {verdict.name:24} {verdict.text}")
        held += sum(verdict.holds for verdict in claims)
        failed += sum(not verdict.holds for verdict in claims + others)
    print(f"{len(names)} lessons, {held} claims hold" + (f", {failed} things do not" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
