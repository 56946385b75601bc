"""The measured part of a step's event: rows, budgets, graph action, intervals, counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.executor.base import StepResult
from engine.plan import PADDING, PREFILL, StepPlan
from engine.recorder import rounded

if TYPE_CHECKING:
    from engine.engine import Engine

GRAPH_COUNTERS = {"capture": "captures", "replay": "replays", "eager": "eager_steps"}


def record_step(engine: Engine, launched: StepPlan | None, collected: StepResult | None) -> None:
    """Record the plan that was launched in this turn and the result that was collected in it.

    They are the same step, unless the engine runs ahead; then the result is one step older (``results_of``).
    """
    recorder = engine.recorder
    report = collected.graph if collected else None
    if launched is not None:
        _record_plan(engine, launched, report.q_padding if report else 0)
    timing: dict[str, Any] = {"schedule": None, "clock": "simulated" if engine.executor.info.simulated else "real"}
    if launched is not None:
        timing["schedule"] = [rounded(moment) for moment in engine.schedule_interval]
    if collected is not None:
        recorder.section("results_of", collected.step)
        timing["prepare"] = [collected.step, *map(rounded, collected.prepare)]
        timing["device"] = [collected.step, *map(rounded, collected.device)]
    if report is not None:
        recorder.count(GRAPH_COUNTERS[report.action])
        recorder.count("padding_tokens", report.q_padding)
        recorder.section("graph", {"action": report.action, "backend": report.backend, "key": report.key,
                                   "q_padding": report.q_padding, "kv_padding": report.kv_padding, "why": report.why})
    recorder.section("timing", timing)


def _record_plan(engine: Engine, plan: StepPlan, q_padding: int) -> None:
    recorder, cap = engine.recorder, engine.config.max_requests_per_batch
    rows = len(plan.slices)
    useful = sum(piece.kind != PADDING for piece in plan.slices)
    # A cell is one slot of the batch in one step: idle when empty, or when it computes a finished request's padding. A cap
    # that was lowered below the running requests leaves more rows than slots for a while, and none idle.
    idle = max(0, cap - useful)
    recorder.slices(plan.slices)
    recorder.count("steps")
    recorder.count("useful_cells", useful)
    recorder.count("idle_cells", idle)
    recorder.count("prompt_tokens", sum(piece.count for piece in plan.slices if piece.kind == PREFILL))
    spent = engine.scheduler.budget
    recorder.section("budget", {
        "tokens": [spent.max_tokens - spent.tokens, spent.max_tokens], "kv": [spent.max_kv - spent.kv, spent.max_kv],
        "requests": [rows, cap], "padding": q_padding, "idle_cells": idle})
