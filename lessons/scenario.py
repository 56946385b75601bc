"""From the runs of a ``scenario.json`` to what the engine is told: device, model, config, workload and script."""

from __future__ import annotations

from typing import Any

from lessons.format import MAX_ENGINE_STEPS, MAX_REQUESTS, Lesson


class ScenarioError(ValueError):
    """The requests of a run cannot be understood; the message says which and why."""


def effective(lesson: Lesson, name: str) -> dict[str, Any]:
    """The run with everything it takes over from the one it is ``like``; its own config is laid over the other's."""
    run = lesson.runs[name]
    base = lesson.runs.get(run.get("like"), {})
    return {**base, **run, "config": {**(base.get("config") or {}), **(run.get("config") or {})}}


def workload_of(lesson: Lesson, name: str) -> dict[str, Any]:
    """The run's workload in the engine's own form (see :mod:`engine.workload`). Raises :class:`ScenarioError`."""
    run = effective(lesson, name)
    if "workload" in run:
        return {"name": f"{lesson.name}: {name}"[:80], **run["workload"]}
    entries = run.get("requests")
    if not isinstance(entries, list) or not entries:
        raise ScenarioError("requests must be a list with at least one entry.")
    items: list[dict[str, Any]] = []
    for position, entry in enumerate(entries):
        items.extend(_expanded(entry, f"requests[{position}]", len(items)))
        if len(items) > MAX_REQUESTS:
            raise ScenarioError(f"a run may have at most {MAX_REQUESTS} requests.")
    items.sort(key=lambda item: item["at_step"])
    return {"name": f"{lesson.name}: {name}"[:80], "seed": run["config"].get("seed", 0), "items": items, "params": run.get("params", {})}


def _expanded(entry: Any, where: str, already: int) -> list[dict[str, Any]]:
    """``count`` requests from one entry: every ``every`` steps from ``at`` on, with the output lengths taken in turn."""
    if not isinstance(entry, dict):
        raise ScenarioError(f"{where} must be an object.")
    at, every, count = entry.get("at", 0), entry.get("every", 0), entry.get("count", 1)
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 0 for value in (at, every, count)) or not 1 <= count <= MAX_REQUESTS:
        raise ScenarioError(f"{where}: at, every and count must be whole numbers.")
    lengths = entry.get("new_tokens", 16)
    lengths = lengths if isinstance(lengths, list) and lengths else [lengths]
    prompts = entry.get("prompt", entry.get("prompt_tokens", 32))
    prompts = prompts if isinstance(prompts, list) and prompts else [prompts]
    items = []
    for number in range(count):
        prompt = prompts[number % len(prompts)]
        if isinstance(prompt, str):
            prompt = prompt.replace("{n}", str(already + number + 1))
        items.append({"at_step": at + number * every, "prompt": prompt, "output": lengths[number % len(lengths)]})
    return items


def live_form(lesson: Lesson, name: str) -> dict[str, Any]:
    """What the browser sends to open a room for this run."""
    run = effective(lesson, name)
    return {"device": lesson.device_of(name), "model": lesson.model_of(name), "config": run["config"], "workload": workload_of(lesson, name),
            "script": run.get("script", []), "max_steps": run.get("max_steps", MAX_ENGINE_STEPS), "recorded": run.get("record", True)}
