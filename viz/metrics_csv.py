"""The figures of a recording as two CSV tables: one row per request, one row per step.

Times are seconds on the room's clock, durations milliseconds. TTFT is first token − arrival. ITL is the gap between
consecutive tokens of one request; several tokens that arrived in one event have a gap of 0. Empty cells are things that
did not happen (a request that was never admitted has no TTFT).
"""

from __future__ import annotations

import csv
import io
from typing import Any

from engine.state import block_counts
from viz.recording import Recording, replay

REQUEST_COLUMNS = ("id", "state", "reason", "prompt_tokens", "output_tokens", "prefix_hit_tokens", "arrival_s", "admitted_s",
                   "first_token_s", "finished_s", "queue_ms", "ttft_ms", "itl_mean_ms", "itl_p50_ms", "itl_p99_ms", "total_ms",
                   "offloads", "soft_resets")
STEP_COLUMNS = ("step", "time_s", "decode_tokens", "prefill_tokens", "padding_tokens", "token_budget", "kv_tokens", "kv_budget",
                "rows", "active", "waiting", "idle_cells", "blocks_owned", "blocks_cached", "blocks_free", "graph", "device_ms",
                "schedule_ms", "prepare_ms", "output_tokens_total", "offloads_total", "soft_resets_total")


def tables(recording: Recording) -> tuple[str, str]:
    """``(per request, per step)`` as CSV text."""
    requests: dict[str, dict[str, Any]] = {}
    device_ms: dict[int, float] = {}
    steps: list[dict[str, Any]] = []
    for event, state in replay(recording):
        # The state forgets retired requests, so remember each one at its end.
        for request_id in _touched(event):
            if request_id in state["requests"]:
                requests[request_id] = request_row(state["requests"][request_id])
        if event["type"] == "step":
            timing = event.get("timing") or {}
            if timing.get("device"):
                device_ms[timing["device"][0]] = _ms(timing["device"][1], timing["device"][2])
            steps.append(step_row(event, state))
    for row in steps:
        row["device_ms"] = device_ms.get(row["step"], "")
    return _csv(REQUEST_COLUMNS, requests.values()), _csv(STEP_COLUMNS, steps)


def request_row(request: dict[str, Any]) -> dict[str, Any]:
    """One request of the state document as a row."""
    gaps = sorted((later - earlier) * 1000 for earlier, later in zip(request["token_times"], request["token_times"][1:], strict=False))
    arrival = request["arrival"]
    return {
        "id": request["id"], "state": request["state"], "reason": request["reason"], "prompt_tokens": request["prompt_len"],
        "output_tokens": request["outputs"], "prefix_hit_tokens": request["prefix_hit_tokens"], "arrival_s": _s(arrival),
        "admitted_s": _s(request["admitted"]), "first_token_s": _s(request["first_token"]), "finished_s": _s(request["finished"]),
        "queue_ms": _ms(arrival, request["admitted"]), "ttft_ms": _ms(arrival, request["first_token"]),
        "itl_mean_ms": round(sum(gaps) / len(gaps), 3) if gaps else "", "itl_p50_ms": percentile(gaps, 50),
        "itl_p99_ms": percentile(gaps, 99), "total_ms": _ms(arrival, request["finished"]), "offloads": request["offloads"],
        "soft_resets": request["soft_resets"],
    }


def step_row(event: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """One step event, and the state after it, as a row (without ``device_ms``, which a later event may bring)."""
    budget, timing, slices = event.get("budget") or {}, event.get("timing") or {}, event.get("slices", [])
    blocks = block_counts(state)
    counters = state["counters"]
    return {
        "step": event["step"], "time_s": _s(event["time"]),
        "decode_tokens": sum(piece[2] for piece in slices if piece[3] == "decode"),
        "prefill_tokens": sum(piece[2] for piece in slices if piece[3] == "prefill"),
        "padding_tokens": sum(piece[2] for piece in slices if piece[3] == "padding") + budget.get("padding", 0), "token_budget": _pair(budget, "tokens", 1),
        "kv_tokens": _pair(budget, "kv", 0), "kv_budget": _pair(budget, "kv", 1), "rows": len(slices),
        "active": len(state["active"]), "waiting": len(state["queue"]), "idle_cells": budget.get("idle_cells", ""),
        "blocks_owned": blocks["owned"], "blocks_cached": blocks["cached"], "blocks_free": blocks["free"],
        "graph": (event.get("graph") or {}).get("action", ""),
        "schedule_ms": _ms(*timing["schedule"]) if timing.get("schedule") else "",
        "prepare_ms": _ms(*timing["prepare"][1:]) if timing.get("prepare") else "",
        "output_tokens_total": counters["output_tokens"], "offloads_total": counters["offloads"],
        "soft_resets_total": counters["soft_resets"],
    }


def percentile(ordered: list[float], percent: float) -> float | str:
    """Linear interpolation between closest ranks (the default of NumPy); ``ordered`` ascends. Empty text when it is empty."""
    if not ordered:
        return ""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 3)


def _touched(event: dict[str, Any]) -> set[str]:
    return ({record["id"] for record in event.get("requests", ())} | {token["id"] for token in event.get("tokens", ())}
            | {transition["id"] for transition in event.get("transitions", ())}
            | {hit["id"] for hit in event.get("prefix_hits", ())})


def _csv(columns: tuple[str, ...], rows: Any) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\r\n", extrasaction="raise", restval="")
    writer.writeheader()
    writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _inert(value: Any) -> Any:
    """Spreadsheets run cells that begin like a formula; ids and reasons come from strangers, so such text is quoted."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _pair(budget: dict[str, Any], name: str, at: int) -> Any:
    pair = budget.get(name)
    return "" if pair is None or pair[at] is None else pair[at]


def _s(seconds: float | None) -> float | str:
    return "" if seconds is None else round(seconds, 6)


def _ms(start: float | None, end: float | None) -> float | str:
    return "" if start is None or end is None else round((end - start) * 1000, 3)
