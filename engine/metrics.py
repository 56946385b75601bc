"""What a run was worth: latency percentiles, throughput, goodput and waste, computed from its events alone.

Definitions, all on the room's clock, in seconds:

* **TTFT**: arrival to first token.  **queue**: arrival to first admission.  **e2e**: arrival to the end.
* **ITL**: gap between two consecutive tokens of one request, pooled over all requests, so that every stall counts.
* **TPOT**: mean gap of one request, (last token − first token) / (tokens − 1); one value a request.
* **percentile q**: linear interpolation between order statistics at position (n − 1)·q (NumPy's default).
* **goodput**: finished requests per second that kept *every* stated limit (DistServe, OSDI 2024, §2).
* **budget use**: mean over steps of query tokens ÷ ``max_batch_tokens``.  **padding**: padding rows ÷ all rows computed.
* **cache use**: share of blocks owned by a request, weighted by time.  **prefix hit rate**: reused ÷ looked-up prompt tokens.

Preemption moves none of the times: a request that was reset keeps its arrival, its first token and its gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.state import ENDED_STATES

PERCENTILES = (0.5, 0.9, 0.99)
LIMITS = ("ttft", "tpot", "e2e", "queue")


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the ascending ``ordered`` lies, interpolated linearly. At least one value."""
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(values: Sequence[float]) -> dict[str, float] | None:
    """``{count, mean, p50, p90, p99, max}``; ``None`` without values."""
    if not values:
        return None
    ordered = sorted(values)
    return {"count": len(ordered), "mean": sum(ordered) / len(ordered),
            **{f"p{share * 100:g}": percentile(ordered, share) for share in PERCENTILES}, "max": ordered[-1]}


@dataclass(slots=True)
class RequestTimes:
    """The moments of one request. ``outputs`` counts tokens; gaps are not kept, they are pooled as they come."""

    arrival: float
    prompt_tokens: int
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    ended: float | None = None
    outcome: str | None = None
    outputs: int = 0
    preemptions: int = 0

    def figures(self) -> dict[str, float]:
        """Those of ``queue``, ``ttft``, ``tpot``, ``e2e`` that are known."""
        known: dict[str, float] = {}
        if self.admitted is not None:
            known["queue"] = self.admitted - self.arrival
        if self.first_token is not None:
            known["ttft"] = self.first_token - self.arrival
            if self.outputs > 1:
                known["tpot"] = (self.last_token - self.first_token) / (self.outputs - 1)
        if self.ended is not None:
            known["e2e"] = self.ended - self.arrival
        return known


class OwnedBlocks:
    """How many blocks have an owner, kept up to date from the ``blocks`` sections of events."""

    def __init__(self) -> None:
        self._tables: dict[str, list[int]] = {}
        self._owners: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def clear(self) -> None:
        self._tables.clear()
        self._owners.clear()

    def apply(self, operation: list[Any]) -> None:
        name = operation[0]
        if name in ("alloc", "share"):
            self._take(operation[1], operation[3])
        elif name == "copy":
            _, request, _, _, source, target = operation
            self._tables[request].remove(source)
            self._drop(source)
            self._take(request, [target])
        elif name in ("free", "swap_out"):
            for block in self._tables.pop(operation[1], ()):
                self._drop(block)
        elif name == "swap_in":
            for blocks in operation[3]:
                self._take(operation[1], blocks)

    def _take(self, request: str, blocks: list[int]) -> None:
        self._tables.setdefault(request, []).extend(blocks)
        self._owners.update(blocks)

    def _drop(self, block: int) -> None:
        self._owners[block] -= 1
        if not self._owners[block]:
            del self._owners[block]


@dataclass
class RunMeter:
    """Feed it every event of a room from the start, in order (or the snapshot first); :meth:`report` at any time."""

    requests: dict[str, RequestTimes] = field(default_factory=dict)
    gaps: list[float] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    started: float | None = None
    now: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        self._owned = OwnedBlocks()
        self._num_blocks = 0
        self._block_time = self._watched_time = 0.0
        self._peak_blocks = 0
        self._budget_shares = 0.0
        self._rows = self._padding = 0
        self._device_time = 0.0
        self._actions: Counter[str] = Counter()

    def feed(self, event: dict[str, Any]) -> None:
        """Take one event into account."""
        if event["type"] == "snapshot":
            self._begin(event["state"])
            return
        elapsed = event["time"] - self.now
        self._block_time += len(self._owned) * elapsed
        self._watched_time += elapsed
        self.now = event["time"]
        self.counters.update(event.get("counters", {}))
        if "layout" in event:
            self._owned.clear()
            self._num_blocks = event["layout"]["num_blocks"]
        for record in event.get("requests", ()):
            self.requests[record["id"]] = RequestTimes(record["arrival"], len(record["prompt_tokens"]))
            if self.started is None:
                self.started = record["arrival"]
        for transition in event.get("transitions", ()):
            self._transition(transition)
        for operation in event.get("blocks", ()):
            self._owned.apply(operation)
        self._peak_blocks = max(self._peak_blocks, len(self._owned))
        for token in event.get("tokens", ()):
            self._token(self.requests[token["id"]])
        if event["type"] == "step":
            self._step(event)

    def _begin(self, state: dict[str, Any]) -> None:
        """From a room that is already running: its requests so far, without the gaps nobody watched."""
        self.now, self.counters = state["time"], dict(state["counters"])
        self._num_blocks = state["layout"]["num_blocks"] if state["layout"] else 0
        for name, known in state["requests"].items():
            self.requests[name] = RequestTimes(
                known["arrival"], known["prompt_len"], known["admitted"], known["first_token"],
                known["token_times"][-1] if known["token_times"] else None, known["finished"],
                known["state"] if known["state"] in ENDED_STATES else None, known["outputs"], known["offloads"] + known["soft_resets"])
            for table in known["tables"]:
                self._owned.apply(["share", name, 0, table])
        self.started = min((one.arrival for one in self.requests.values()), default=None)

    def _transition(self, transition: dict[str, Any]) -> None:
        times, cause = self.requests[transition["id"]], transition["cause"]
        if cause == "admitted" and times.admitted is None:
            times.admitted = transition["time"]
        elif cause in ("offload", "soft_reset"):
            times.preemptions += 1
        elif cause != "static_release" and transition["to"] in ENDED_STATES:
            times.outcome, times.ended = transition["to"], transition["time"]

    def _token(self, times: RequestTimes) -> None:
        if times.first_token is None:
            times.first_token = self.now
        elif times.last_token is not None:
            self.gaps.append(self.now - times.last_token)
        times.last_token = self.now
        times.outputs += 1

    def _step(self, event: dict[str, Any]) -> None:
        budget = event.get("budget")
        if budget is not None:
            self.steps += 1
            used, limit = budget["tokens"]
            self._budget_shares += used / limit
            self._rows += used
            self._padding += sum(count for _, _, count, kind, _ in event.get("slices", ()) if kind == "padding")
        graph = event.get("graph")
        if graph is not None:
            self._actions[graph["action"]] += 1
            self._rows += graph["q_padding"]
            self._padding += graph["q_padding"]
        device = (event.get("timing") or {}).get("device")
        if device:
            self._device_time += device[2] - device[1]

    def report(self, limits: dict[str, float] | None = None) -> dict[str, Any]:
        """All figures, JSON-ready; ``None`` stands where there is nothing to say. ``limits`` are upper bounds in seconds for
        any of ``ttft``, ``tpot``, ``e2e`` and ``queue``, for the goodput. Raises ``ValueError`` for another name."""
        unknown = set(limits or ()) - set(LIMITS)
        if unknown:
            raise ValueError(f"there are limits for {', '.join(LIMITS)}, not for {', '.join(sorted(unknown))}")
        seconds = self.now - self.started if self.started is not None else 0.0
        figures = [one.figures() for one in self.requests.values() if one.outcome == "finished"]
        outcomes = Counter(one.outcome or "unfinished" for one in self.requests.values())
        outputs = sum(one.outputs for one in self.requests.values())
        counters = self.counters
        cells = counters.get("idle_cells", 0) + counters.get("useful_cells", 0)
        good = None
        if limits:
            # A one-token answer has no TPOT, and none to miss.
            kept = sum(all(one.get(name, 0.0) <= bound for name, bound in limits.items()) for one in figures)
            good = {"limits": dict(limits), "share": _ratio(kept, len(self.requests)), "requests_s": _ratio(kept, seconds)}
        return {
            "seconds": seconds, "steps": self.steps, "requests": {"total": len(self.requests), **outcomes},
            **{name: summary([one[name] for one in figures if name in one]) for name in ("ttft", "tpot", "queue", "e2e")},
            "itl": summary(self.gaps),
            "output_tokens": outputs, "prompt_tokens": sum(one.prompt_tokens for one in self.requests.values()),
            "output_tok_s": _ratio(outputs, seconds), "requests_s": _ratio(len(figures), seconds), "goodput": good,
            "budget_use": _ratio(self._budget_shares, self.steps), "padding_share": _ratio(self._padding, self._rows),
            "idle_cell_share": _ratio(counters.get("idle_cells", 0), cells),
            "cache_use": _ratio(self._block_time, self._watched_time * self._num_blocks),
            "cache_peak": _ratio(self._peak_blocks, self._num_blocks),
            "prefix_hit_rate": _ratio(counters.get("prefix_hit_tokens", 0), counters.get("prefix_query_tokens", 0)),
            "device_busy": _ratio(self._device_time, seconds),
            "preemptions": {name: counters.get(name, 0) for name in ("offloads", "soft_resets", "restores", "recomputed_tokens")},
            "graphs": dict(self._actions),
        }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
