"""What a run is measured by: the names that predicates, answers, claims and the prose of a lesson may use.

:class:`Measure` is fed the events of a run with the state after each, and gives one flat record of metrics at any moment. Its
twin for the learner's own run is ``viz/static/lessons/measure.js``; a test holds both to the same record on every recorded
lesson. Times are seconds on the room's clock, shares lie between 0 and 1, percentiles are nearest-rank. A metric nobody could
measure yet is ``None``.
"""

from __future__ import annotations

import math
from typing import Any

from engine.state import COUNTERS

COUNTED_REASONS = ("token_budget", "no_free_block", "safety_margin", "request_cap", "kv_read_budget", "static_barrier",
                   "whole_prompt", "starved")
PERCENTILES = (("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("max", 1.0))
DISTRIBUTIONS = ("ttft", "queue", "itl", "e2e")

#: fields of one entry of ``requests``, in order of arrival
REQUEST_FIELDS = ("id", "arrival_step", "admitted_step", "first_token_step", "finished_step", "prompt", "outputs", "prefix_hits",
                  "slices", "offloads", "soft_resets", "queue", "ttft", "e2e", "itl_mean", "itl_max", "digest")

METRICS: dict[str, str] = {
    "step": "index of the last step", "time": "seconds on the room's clock", "pending": "requests waiting now",
    "prefilling": "requests whose prompt is being computed now", "decoding": "requests that generate now",
    "offloaded": "requests swapped out now", "ended": "requests that have ended", "steps_run": "steps seen in this run",
    "seconds": "from the first arrival to the last step", "requests": "one record a request, in order of arrival",
    **{f"{kind}_{name}": f"{name} of {kind} in seconds" for kind in DISTRIBUTIONS for name in ("mean", "p50", "p90", "p99", "max")},
    "output_tok_s": "generated tokens a second", "request_s": "finished requests a second",
    "batch_max": "most requests in one step", "batch_mean": "requests in a step, on average",
    "step_tokens_max": "most query tokens in one step", "step_tokens_mean": "query tokens in a step, on average",
    "budget_use": "share of the token budget used, on average", "slice_max": "longest prefill slice, tokens",
    "intrusion_max": "most prompt tokens computed in a step that also decoded", "kv_read_mean": "cached tokens read by a step",
    "device_s": "device seconds, all steps", "step_s_p50": "median device time of a step", "step_s_max": "longest step",
    "decode_s_p50": "median device time of steps that only decode", "cycle_s_p50": "median time between two results",
    "device_busy": "share of the time in which the device computed", "prepare_s_mean": "host preparation of a step",
    "overlap": "share of the host's preparation that lies under another step's device time",
    "blocks_total": "blocks in the pool", "block_size": "tokens a block", "block_bytes": "bytes a block",
    "groups": "layer groups", "used_max": "most blocks owned at once", "used_mean": "blocks owned after a step, on average",
    "used_now": "blocks owned now", "cached_now": "blocks cached without an owner now", "free_min": "fewest blocks free of owners",
    "cached_max": "most blocks cached at once", "shared_max": "most blocks with two or more owners",
    "waste_mean": "share of owned slots that hold no token, on average", "waste_max": "the same at its worst",
    "waited": "steps at which the first refusal had this reason, by reason", "queue_max": "longest queue",
    "preemptions": "offloads and soft resets", "padding_share": "share of computed rows that were padding",
    "hit_share": "share of the asked prompt tokens found in the prefix cache",
    "good_share": "share of finished requests that met the limits", "good_tok_s": "their tokens a second",
    "digest": "a check sum over all generated tokens", "simulated": "whether the device is simulated",
    **dict.fromkeys(COUNTERS, "engine counter"),
}


def percentile(values: list[float], share: float) -> float | None:
    """Nearest-rank percentile of unsorted ``values``; ``None`` of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def fold(digest: int, number: int) -> int:
    """One step of FNV-1a over a token id: equal digests, equal tokens in equal order."""
    for shift in (0, 8, 16, 24):
        digest = ((digest ^ ((number >> shift) & 0xFF)) * 16777619) & 0xFFFFFFFF
    return digest


FNV_START = 2166136261


class Measure:
    """Accumulates one run. Feed it with :meth:`take` in order; read it with :meth:`record` at any time."""

    def __init__(self, limits: dict[str, float] | None = None) -> None:
        self.limits = limits or {}
        self.state: dict[str, Any] | None = None
        self.requests: dict[str, dict[str, Any]] = {}
        self.waited = dict.fromkeys(COUNTED_REASONS, 0)
        self.series: dict[str, list[float]] = {name: [] for name in (
            "batch", "tokens", "budget", "kv", "device", "decode", "cycle", "prepare", "used", "waste")}
        self.peaks = dict.fromkeys(("slice", "intrusion", "used", "cached", "shared", "queue"), 0)
        self.free_min: int | None = None
        self.device_spans: dict[int, tuple[float, float]] = {}
        self.prepare_spans: dict[int, tuple[float, float]] = {}
        self.last_result: float | None = None
        self.blocks_now = (0, 0)

    def take(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        """Account for ``event``; ``state`` is the state document after it (read, never kept beyond the next call)."""
        self.state = state
        for record in event.get("requests", ()):
            self.requests[record["id"]] = {
                "id": record["id"], "arrival": record["arrival"], "arrival_step": record["arrival_step"], "admitted": None,
                "admitted_step": None, "first_token_step": None, "finished_step": None, "finished": None, "slices": 0,
                "prompt": len(record["prompt_tokens"]), "outputs": 0, "prefix_hits": 0, "offloads": 0, "soft_resets": 0,
                "times": [], "digest": FNV_START}
        for transition in event.get("transitions", ()):
            self._transition(transition, event)
        for hit in event.get("prefix_hits", ()):
            self.requests[hit["id"]]["prefix_hits"] += hit["tokens"]
        for token in event.get("tokens", ()):
            request = self.requests[token["id"]]
            request["outputs"] += 1
            request["times"].append(event["time"])
            request["digest"] = fold(request["digest"], token["token"])
            if request["first_token_step"] is None:
                request["first_token_step"] = event["step"]
        if event["type"] == "step":
            self._step(event, state)
        self._memory(event, state)
        queue = len(state["queue"])
        self.peaks["queue"] = max(self.peaks["queue"], queue)

    def _transition(self, transition: dict[str, Any], event: dict[str, Any]) -> None:
        request, cause = self.requests[transition["id"]], transition["cause"]
        if cause == "admitted" and request["admitted_step"] is None:
            request["admitted"], request["admitted_step"] = transition["time"], event["step"]
        elif cause == "offload":
            request["offloads"] += 1
        elif cause == "soft_reset":
            request["soft_resets"] += 1
        elif transition["to"] in ("finished", "cancelled", "failed") and cause != "static_release":
            request["finished"], request["finished_step"] = transition["time"], event["step"]

    def _step(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        series, slices = self.series, event.get("slices", [])
        real = [piece for piece in slices if piece[3] != "padding"]
        prompts = [piece[2] for piece in real if piece[3] == "prefill"]
        # An event tells who waits only when that has changed; the state always knows.
        refused = state["waiting"]["refused"]
        if refused and refused[0]["reason"] in self.waited:
            self.waited[refused[0]["reason"]] += 1
        if slices:
            for piece in real:
                self.requests[piece[0]]["slices"] += piece[3] == "prefill"
            series["batch"].append(len(real))
            series["tokens"].append(sum(piece[2] for piece in real))
            series["kv"].append(sum(piece[1] + piece[2] for piece in real))
            if event.get("budget"):
                used, limit = event["budget"]["tokens"]
                series["budget"].append(used / limit)
            if prompts:
                self.peaks["slice"] = max(self.peaks["slice"], *prompts)
            if prompts and len(prompts) < len(real):
                self.peaks["intrusion"] = max(self.peaks["intrusion"], sum(prompts))
        self._timing(event, bool(real) and not prompts)

    def _timing(self, event: dict[str, Any], only_decodes: bool) -> None:
        timing = event.get("timing") or {}
        if timing.get("device"):
            step, start, end = timing["device"]
            self.device_spans[step] = (start, end)
            self.series["device"].append(end - start)
            # With async batching the span is the previous step's; what that step held is only known when both agree.
            if only_decodes and step == event["step"]:
                self.series["decode"].append(end - start)
        if timing.get("prepare"):
            step, start, end = timing["prepare"]
            self.prepare_spans[step] = (start, end)
            self.series["prepare"].append(end - start)
        if event.get("tokens"):
            if self.last_result is not None:
                self.series["cycle"].append(event["time"] - self.last_result)
            self.last_result = event["time"]

    def _memory(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        layout = state["layout"]
        if not layout or not any(name in event for name in ("blocks", "slices", "layout", "transitions")):
            return
        owners: dict[int, int] = {}
        slots = tokens = 0
        for request in state["requests"].values():
            for group, table in zip(layout["groups"], request["tables"]):
                held = request["computed"] if group["window"] is None else min(request["computed"], group["window"])
                slots += len(table) * layout["block_size"]
                tokens += min(held, len(table) * layout["block_size"])
                for block in table:
                    owners[block] = owners.get(block, 0) + 1
        used = len(owners)
        cached = sum(1 for block in state["hashes"] if int(block) not in owners)
        self.blocks_now = (used, cached)
        peaks = self.peaks
        peaks["used"], peaks["cached"] = max(peaks["used"], used), max(peaks["cached"], cached)
        peaks["shared"] = max(peaks["shared"], sum(1 for count in owners.values() if count > 1))
        free = layout["num_blocks"] - used
        self.free_min = free if self.free_min is None else min(self.free_min, free)
        if event["type"] == "step":
            self.series["used"].append(used)
            if slots:
                self.series["waste"].append(1 - tokens / slots)

    def record(self) -> dict[str, Any]:
        """All of :data:`METRICS` by name, JSON-ready."""
        state, series, peaks = self.state, self.series, self.peaks
        if state is None:
            return dict.fromkeys(METRICS)
        rows = [self._request(request) for request in self.requests.values()]
        arrivals = [request["arrival"] for request in self.requests.values()]
        seconds = state["time"] - min(arrivals) if arrivals else 0.0
        found: dict[str, Any] = dict(state["counters"])
        states = [request["state"] for request in state["requests"].values()]
        found.update(step=state["step"], time=state["time"], steps_run=len(series["batch"]), seconds=seconds, requests=rows,
                     pending=states.count("pending"), prefilling=states.count("prefilling"), decoding=states.count("decoding"),
                     offloaded=sum(request["offloaded"] for request in state["requests"].values()),
                     ended=sum(request["finished"] is not None for request in self.requests.values()))
        gaps = [b - a for request in self.requests.values() for a, b in zip(request["times"], request["times"][1:])]
        for kind in DISTRIBUTIONS:
            values = gaps if kind == "itl" else [row[kind] for row in rows if row[kind] is not None]
            found[f"{kind}_mean"] = mean(values)
            found.update({f"{kind}_{name}": percentile(values, share) for name, share in PERCENTILES})
        outputs = sum(row["outputs"] for row in rows)
        finished = [row for row in rows if row["e2e"] is not None]
        good = [row for row in finished if self._good(row)]
        found.update(
            output_tok_s=outputs / seconds if seconds else None, request_s=len(finished) / seconds if seconds else None,
            good_share=len(good) / len(rows) if rows else None,
            good_tok_s=sum(row["outputs"] for row in good) / seconds if seconds else None,
            batch_max=max(series["batch"], default=0), batch_mean=mean(series["batch"]),
            step_tokens_max=max(series["tokens"], default=0), step_tokens_mean=mean(series["tokens"]),
            budget_use=mean(series["budget"]), slice_max=peaks["slice"], intrusion_max=peaks["intrusion"], kv_read_mean=mean(series["kv"]),
            device_s=sum(series["device"]), step_s_p50=percentile(series["device"], 0.5), step_s_max=max(series["device"], default=None),
            decode_s_p50=percentile(series["decode"], 0.5), cycle_s_p50=percentile(series["cycle"], 0.5),
            device_busy=self._busy(), prepare_s_mean=mean(series["prepare"]), overlap=self._overlap())
        layout = state["layout"] or {}
        counters = state["counters"]
        computed = counters["prompt_tokens"] + counters["output_tokens"] + counters["padding_tokens"]
        found.update(
            blocks_total=layout.get("num_blocks"), block_size=layout.get("block_size"), block_bytes=layout.get("block_bytes"),
            groups=len(layout.get("groups", ())), used_max=peaks["used"], used_mean=mean(series["used"]), used_now=self.blocks_now[0],
            cached_now=self.blocks_now[1], free_min=self.free_min, cached_max=peaks["cached"], shared_max=peaks["shared"],
            waste_mean=mean(series["waste"]), waste_max=max(series["waste"], default=None), waited=dict(self.waited),
            queue_max=peaks["queue"], preemptions=counters["offloads"] + counters["soft_resets"],
            padding_share=counters["padding_tokens"] / computed if computed else None,
            hit_share=counters["prefix_hit_tokens"] / counters["prefix_query_tokens"] if counters["prefix_query_tokens"] else None,
            digest=self._digest(), simulated=bool(state["engine"].get("simulated")))
        return found

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        times = request["times"]
        gaps = [b - a for a, b in zip(times, times[1:])]
        row = {name: request[name] for name in REQUEST_FIELDS if name in request}
        row.update(queue=None if request["admitted"] is None else request["admitted"] - request["arrival"],
                   ttft=times[0] - request["arrival"] if times else None,
                   e2e=None if request["finished"] is None else request["finished"] - request["arrival"],
                   itl_mean=mean(gaps), itl_max=max(gaps, default=None))
        return row

    def _good(self, row: dict[str, Any]) -> bool:
        """Within the limits of the scenario: ``ttft`` for the first token, ``itl`` for the mean gap of the request."""
        late = row["ttft"] is None or row["ttft"] > self.limits.get("ttft", math.inf)
        slow = row["itl_mean"] is not None and row["itl_mean"] > self.limits.get("itl", math.inf)
        return not late and not slow

    def _busy(self) -> float | None:
        spans = list(self.device_spans.values())
        if not spans:
            return None
        whole = max(end for _, end in spans) - min(start for start, _ in spans)
        return min(1.0, sum(end - start for start, end in spans) / whole) if whole > 0 else None

    def _overlap(self) -> float | None:
        total = hidden = 0.0
        for step, (start, end) in self.prepare_spans.items():
            total += end - start
            before = self.device_spans.get(step - 1)
            if before:
                hidden += max(0.0, min(end, before[1]) - max(start, before[0]))
        return hidden / total if total > 0 else None

    def _digest(self) -> int:
        digest = FNV_START
        for request in self.requests.values():
            digest = fold(digest, request["digest"])
        return digest
