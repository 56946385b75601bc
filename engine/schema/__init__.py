"""The event stream and the state document as JSON Schema (draft 2020-12), in ``events.v1.json``.

The schema is strict: a section or field that it does not name is an error. Tests hold every event to it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("events.v1.json")


@lru_cache(maxsize=1)
def load_schema() -> dict[str, Any]:
    """The schema of one message: a snapshot, or an event. ``$defs/state`` is the state document alone."""
    return json.loads(PATH.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def validator() -> Any:
    """A compiled validator (needs the ``jsonschema`` package, which only tests and tools have)."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(load_schema())


def first_problem(message: dict[str, Any]) -> str | None:
    """What is wrong with a message, as a sentence with the place; ``None`` when it is valid."""
    for problem in validator().iter_errors(message):
        deepest = min(problem.context, key=lambda one: -len(one.absolute_path)) if problem.context else problem
        place = "/".join(str(part) for part in deepest.absolute_path) or "the message"
        return f"{place}: {deepest.message[:300]}"
    return None
