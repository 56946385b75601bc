"""``python -m lessons.score``: run a challenge again with somebody's knobs and print the result. What the class board believes.

Reads ``{"lesson": name, "knobs": {…}}`` from standard input and prints ``{"score", "reached", "shown"}``, or ``{"error"}``. Only the
knobs and values that the challenge offers are taken; the load and the seed are the lesson's own, so a score cannot be forged.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from engine.errors import BatchscopeError
from lessons.expression import Expression, ExpressionError
from lessons.format import Lesson, LessonBroken
from lessons.loader import find_lesson, load_lesson
from lessons.runner import RunFailed, Runner


class ScoreRefused(ValueError):
    """The knobs are not those of the challenge; the message says which."""


def scored_step(lesson: Lesson) -> dict[str, Any]:
    """The step whose challenge is scored. Raises :class:`ScoreRefused` when the lesson keeps no score."""
    steps = [step for step in lesson.steps if "challenge" in step]
    if "score" not in lesson.scenario or not steps:
        raise ScoreRefused("This lesson keeps no score.")
    return steps[-1]


def check_knobs(challenge: dict[str, Any], knobs: Any) -> dict[str, Any]:
    """The knobs, each one offered by the challenge with this very value. Raises :class:`ScoreRefused`."""
    if not isinstance(knobs, dict):
        raise ScoreRefused("The knobs must be an object of names and values.")
    for name, value in knobs.items():
        offered = challenge["knobs"].get(name)
        if offered is None or not any((type(value) is type(choice) and value == choice) or
                                      (isinstance(value, (int, float)) and not isinstance(value, bool) and not isinstance(choice, bool) and value == choice)
                                      for choice in offered):
            raise ScoreRefused(f"The challenge does not offer {str(name)[:40]} = {str(value)[:40]}.")
    return knobs


def score(lesson: Lesson, knobs: Any, runner: Runner | None = None) -> dict[str, Any]:
    """Run the challenge with ``knobs``. Raises :class:`ScoreRefused`, :class:`RunFailed` or :class:`BatchscopeError`."""
    challenge = scored_step(lesson)["challenge"]
    if not lesson.device_of(challenge["run"]).startswith("simulated:"):
        raise ScoreRefused("Only challenges on a simulated device are scored.")
    mine = (runner or Runner()).run(lesson, challenge["run"], check_knobs(challenge, knobs)).metrics
    names = {"mine": mine}
    reached = Expression(challenge["goal"]).evaluate(names)
    value = Expression(lesson.scenario["score"]).evaluate(names)
    return {"score": round(float(value), 1), "reached": reached, "shown": {name: mine[name] for name in challenge.get("show", ())}}


def main() -> int:
    try:
        asked = json.loads(sys.stdin.read(65536))
        answer = score(load_lesson(find_lesson(str(asked["lesson"]))), asked["knobs"])
    except (ScoreRefused, RunFailed, BatchscopeError, ExpressionError) as problem:
        answer = {"error": str(problem)}
    except (KeyError, TypeError, ValueError, LessonBroken):
        answer = {"error": "This is not a run of a lesson's challenge."}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
