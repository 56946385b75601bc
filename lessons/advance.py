"""When a step goes on: its predicate over the run it watches, event by event.

``answered``, ``read``, ``reached`` and ``done`` are the learner's part and the run's end: the question was answered, the learner
asked to go on, the challenge was met, the run has ended.
"""

from __future__ import annotations

import json
from typing import Any

from engine.state import apply_event
from lessons.expression import Expression, ExpressionError
from lessons.measure import Measure
from lessons.runner import Run


def first_advance(step: dict[str, Any], run: Run, limits: dict[str, float]) -> int | None:
    """Engine step at which the predicate first holds, with the learner having done their part; ``None``: never."""
    predicate = Expression(step["advance"])
    learner = {"answered": "question" in step, "read": True, "reached": "challenge" in step}
    state, measure = json.loads(json.dumps(run.snapshot["state"])), Measure(limits)
    for index, event in enumerate(run.events):
        apply_event(state, event)
        measure.take(event, state)
        last = index == len(run.events) - 1
        # Records are not cheap: look at the end first, and then only where it can matter.
        if last or event["type"] == "step":
            try:
                if predicate.evaluate({**measure.record(), **learner, "done": last}):
                    return state["step"]
            except ExpressionError:
                # Early in a run some metrics do not exist yet: then the moment has not come.
                if last:
                    raise
    return None
