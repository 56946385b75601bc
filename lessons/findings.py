"""What all checks of a lesson share: finding the line, and testing fields, numbers and expressions."""

from __future__ import annotations

import re
from typing import Any

from lessons import format as f
from lessons.expression import Expression, ExpressionError
from lessons.measure import METRICS, REQUEST_FIELDS

SCENARIO, CHECKS = f.FILES[:2]
_REQUEST_FIELD = re.compile(r"requests\[\d+\]\.([a-zA-Z_]\w*)|column\([\w.]*requests, *['\"](\w+)['\"]")


class Findings:
    """The problems found in one lesson so far."""

    def __init__(self, lesson: f.Lesson, glossary: dict[str, Any]) -> None:
        self.lesson, self.glossary = lesson, glossary
        self.problems: list[f.Problem] = []

    def say(self, file: str, where: tuple[Any, ...] | int, message: str) -> None:
        line = where if isinstance(where, int) else self.lesson.line(file, where)
        self.problems.append(f.Problem(file, line, message))

    def fields(self, file: str, path: tuple[Any, ...], value: Any, known: set[str], needed: tuple[str, ...] = ()) -> bool:
        """Whether ``value`` is an object with the ``needed`` names; unknown names are reported."""
        if not isinstance(value, dict):
            self.say(file, path, "an object with names and values belongs here.")
            return False
        for name in value:
            if name not in known:
                self.say(file, (*path, name), f"there is no field \"{name[:40]}\" here; the fields are {', '.join(sorted(known))}.")
        missing = [name for name in needed if name not in value]
        if missing:
            self.say(file, path, f"the field \"{missing[0]}\" is missing.")
        return not missing

    def whole(self, path: tuple[Any, ...], value: Any, low: int, high: int, what: str) -> bool:
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        if not good:
            self.say(SCENARIO, path, f"{what} must be a whole number between {low} and {high}.")
        return good

    def expression(self, file: str, where: tuple[Any, ...] | int, text: Any, *, predicate: bool = False) -> bool:
        """Whether ``text`` is an expression whose every name exists."""
        try:
            parsed = Expression(text)
        except ExpressionError as error:
            self.say(file, where, str(error))
            return False
        good = True
        runs = self.lesson.runs
        for name in parsed.names:
            first, _, rest = name.partition(".")
            metric = rest.partition(".")[0] if not predicate else first
            if predicate and first not in METRICS and first not in f.PREDICATE_NAMES:
                self.say(file, where, f"'{first}' is no metric of a run and none of {', '.join(f.PREDICATE_NAMES)}.")
                good = False
            elif not predicate and first not in runs and first != "mine":
                self.say(file, where, f"there is no run named '{first}'; the runs are {', '.join(runs)}.")
                good = False
            elif not predicate and metric and metric not in METRICS:
                self.say(file, where, f"'{metric}' is no metric of a run; see lessons/README.md for the list.")
                good = False
        for field in (match[1] or match[2] for match in _REQUEST_FIELD.finditer(parsed.text)):
            if field not in REQUEST_FIELDS:
                self.say(file, where, f"'{field[:30]}' is no field of a request; they are {', '.join(REQUEST_FIELDS)}.")
                good = False
        return good
