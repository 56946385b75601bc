"""Events in sentences: what happened to which request, for people who read a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

CAUSES = {
    "admitted": "is admitted",
    "prompt_done": "has its whole prompt in the cache and decodes",
    "stop": "finishes (stop)",
    "length": "finishes (length reached)",
    "cancelled": "is cancelled",
    "offload": "is offloaded to host memory",
    "restore": "is back from host memory",
    "soft_reset": "loses its blocks (soft reset) and queues again",
    "rebuild": "queues again, because the cache is rebuilt",
    "static_release": "gives its slot back",
}


def sentences(event: dict[str, Any]) -> Iterator[str]:
    """One sentence for each thing worth telling in ``event``."""
    if event["type"] == "snapshot":
        state = event["state"]
        engine = state["engine"]
        where = f" on {engine['device']}" if engine.get("device") else ""
        yield (
            f"joined room {event['room']}: {engine.get('model') or 'no model yet'}{where}, {engine['status']}; "
            f"{len(state['queue'])} waiting, {len(state['active'])} running"
        )
        return
    if "engine" in event:
        engine = event["engine"]
        if "status" in engine or engine.get("message"):
            yield " ".join(part for part in ("engine:", engine.get("status", ""), engine.get("message", "")) if part)
    if "changed" in event:
        values = ", ".join(f"{name} = {event['config'][name]}" for name in event["changed"])
        yield f"config: {values}" + (" (cache rebuilt)" if event.get("rebuilt") else "")
    for record in event.get("requests", ()):
        prompt, new = len(record["prompt_tokens"]), record["params"]["max_new_tokens"]
        yield f"{record['id']} arrives: {prompt} prompt tokens, up to {new} new ones"
    for transition in event.get("transitions", ()):
        cause = transition["cause"]
        what = f"fails: {transition.get('reason')}" if cause == "failed" else CAUSES.get(cause, cause)
        yield f"{transition['id']} {what}"
    for hit in event.get("prefix_hits", ()):
        yield f"{hit['id']} finds {hit['tokens']} tokens of its prompt in the prefix cache"
    if event["type"] == "step":
        yield _step(event)
    for wait in event.get("waiting", {}).get("refused", ()):
        yield f"{wait['id']} waits: {wait['reason'].replace('_', ' ')} (needs {wait['need']}, has {wait['have']})"
    for token in event.get("tokens", ()):
        if token["text"]:
            yield f"{token['id']} says {token['text']!r}"


def _step(event: dict[str, Any]) -> str:
    parts = [
        f"{request} {kind} {start}–{start + count - 1}" if count > 1 else f"{request} {kind} {start}"
        for request, start, count, kind, _ in event.get("slices", ())
    ]
    text = f"step {event['step']}: {', '.join(parts) or 'no slices'}"
    device = (event.get("timing") or {}).get("device")
    if device:
        text += f" [{(device[2] - device[1]) * 1000:.1f} ms]"
    graph = event.get("graph")
    if graph and graph["action"] != "eager":
        text += f" [graph {graph['action']} {graph['key']}]"
    return text
