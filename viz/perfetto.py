"""A recording as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Two processes. *Requests* has one lane per request: waiting, prefill slices, decode ticks, offloaded. *Steps* has the rows
of the machine: scheduling and preparing on the CPU, the device, and counters for blocks, requests and tokens of a step.

Viewers choose colours themselves: Perfetto from a slice's name, on purpose; chrome://tracing takes ``cname`` from a fixed
list. So every slice of a request carries the page's own colour as ``args.colour`` and the nearest ``cname``.

Slices of a lane never overlap, which both viewers require: a slice begins no earlier than the one before it has ended.
"""

from __future__ import annotations

from typing import Any

from engine.state import block_counts
from viz.palette import request_colour
from viz.recording import Recording, replay

REQUESTS, STEPS = 1, 2
CPU_SCHEDULE, CPU_PREPARE, DEVICE = 1, 2, 3

#: chrome://tracing's reserved names whose colour is nearest to each entry of the page's palette, by hue.
_RESERVED = {"red": "terrible", "orange": "bad", "green": "good", "blue": "thread_state_runnable", "grey": "grey"}


def chrome_trace(recording: Recording) -> dict[str, Any]:
    """The trace document of ``recording``, JSON-ready. Times are microseconds on the room's clock."""
    return _Trace(recording).document()


class _Trace:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.events: list[dict[str, Any]] = []
        self.ordinals: dict[str, int] = {}
        self.waiting_since: dict[str, tuple[float, str]] = {}      # request → (time, why it stands in the queue)
        self.reasons: dict[str, list[str]] = {}                    # request → reasons it was refused for since then
        self.pending_slices: dict[int, list[list[Any]]] = {}       # step → slices whose device interval is not known yet
        self.lane_end: dict[tuple[int, int], float] = {}
        self.end = 0.0

    def document(self) -> dict[str, Any]:
        card = self.recording.header
        self._name(REQUESTS, "Requests", {})
        self._name(STEPS, "Steps", {CPU_SCHEDULE: "CPU: schedule", CPU_PREPARE: "CPU: prepare", DEVICE: _device_name(card)})
        for request in self.recording.snapshot["state"].get("requests", {}).values():
            self._meet(request)
            if request["state"] == "pending" or request["offloaded"]:
                self.waiting_since[request["id"]] = (request["arrival"], "offloaded" if request["offloaded"] else "pending")
        for event, state in replay(self.recording):
            self._event(event, state)
        for request_id in list(self.waiting_since):
            self._stop_waiting(request_id, self.end)
        return {"traceEvents": self.events, "displayTimeUnit": "ms",
                "otherData": {name: card.get(name) for name in ("format", "model", "device", "dtype", "simulated", "started")}}

    def _event(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        self.end = max(self.end, event["time"])
        for record in event.get("requests", ()):
            self._meet(record)
            self.waiting_since[record["id"]] = (record["arrival"], "pending")
        for refused in (event.get("waiting") or {}).get("refused", ()):
            known = self.reasons.setdefault(refused["id"], [])
            if refused["reason"] not in known:
                known.append(refused["reason"])
        for transition in event.get("transitions", ()):
            self._transition(transition)
        if event["type"] == "step":
            self._step(event, state)

    def _transition(self, transition: dict[str, Any]) -> None:
        request_id, cause, time = transition["id"], transition["cause"], transition["time"]
        self._stop_waiting(request_id, time)
        if cause in ("offload", "soft_reset", "rebuild"):
            self.waiting_since[request_id] = (time, "offloaded" if cause == "offload" else f"pending after {cause}")
        if cause not in ("admitted", "prompt_done", "static_release"):
            details = {key: value for key, value in transition.items() if key not in ("id", "time")}
            self.events.append({"ph": "i", "s": "t", "name": cause, "cat": "transition", "pid": REQUESTS,
                                "tid": self._tid(request_id), "ts": _us(time), "args": details})

    def _step(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        step, timing, budget = event["step"], event.get("timing") or {}, event.get("budget") or {}
        self.pending_slices[step] = event.get("slices", [])
        if timing.get("schedule"):
            self._slice(STEPS, CPU_SCHEDULE, f"schedule {step}", *timing["schedule"], "cpu", {"step": step})
        for name, lane in (("prepare", CPU_PREPARE), ("device", DEVICE)):
            if timing.get(name):
                of_step, start, end = timing[name]
                graph = event.get("graph") if of_step == step else None
                args = {"step": of_step, **({"graph": graph["action"], "graph_backend": graph["backend"]} if graph else {})}
                self._slice(STEPS, lane, f"step {of_step}" if lane == DEVICE else f"prepare {of_step}", start, end, "cpu"
                            if lane == CPU_PREPARE else "device", args)
                if lane == DEVICE:
                    self._request_slices(of_step, start, end)
        tokens = {kind: sum(piece[2] for piece in event.get("slices", ()) if piece[3] == kind) for kind in ("decode", "prefill", "padding")}
        tokens["padding"] += budget.get("padding", 0)
        self._counter("tokens of the step", event["time"], tokens)
        self._counter("requests", event["time"], {"active": len(state["active"]), "waiting": len(state["queue"])})
        if state["layout"]:
            counts = block_counts(state)
            self._counter("blocks", event["time"], {name: counts[name] for name in ("owned", "cached", "free")})

    def _request_slices(self, step: int, start: float, end: float) -> None:
        for request_id, first, count, kind, _samples in self.pending_slices.pop(step, ()):
            name = {"prefill": f"prefill {count}", "decode": "decode", "padding": "padding (slot held)"}[kind]
            self._slice(REQUESTS, self._tid(request_id), name, start, end, kind,
                        {"step": step, "positions": [first, first + count], "colour": self._colour(request_id)},
                        cname="grey" if kind == "padding" else _nearest_reserved(self._colour(request_id)))

    def _stop_waiting(self, request_id: str, time: float) -> None:
        since = self.waiting_since.pop(request_id, None)
        if since is not None:
            self._slice(REQUESTS, self._tid(request_id), since[1], since[0], time, "waiting",
                        {"reasons": self.reasons.pop(request_id, []), "colour": self._colour(request_id)}, cname="grey")

    def _meet(self, request: dict[str, Any]) -> None:
        self.ordinals[request["id"]] = request["ordinal"]
        tid = self._tid(request["id"])
        self.events.append(_meta("thread_name", REQUESTS, tid, name=request["id"]))
        self.events.append(_meta("thread_sort_index", REQUESTS, tid, sort_index=tid))

    def _tid(self, request_id: str) -> int:
        return self.ordinals[request_id] + 1        # thread 0 means "none" to some viewers

    def _colour(self, request_id: str) -> str:
        return request_colour(self.ordinals[request_id])

    def _slice(self, pid: int, tid: int, name: str, start: float, end: float, category: str, args: dict[str, Any],
               cname: str | None = None) -> None:
        begin, finish = max(_us(start), self.lane_end.get((pid, tid), 0.0)), _us(end)
        finish = max(begin, finish)
        self.lane_end[pid, tid] = finish
        event = {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": begin, "dur": round(finish - begin, 3),
                 "args": args}
        self.events.append(event if cname is None else {**event, "cname": cname})

    def _counter(self, name: str, time: float, values: dict[str, int]) -> None:
        self.events.append({"ph": "C", "name": name, "pid": STEPS, "tid": 0, "ts": _us(time), "args": values})

    def _name(self, pid: int, process: str, threads: dict[int, str]) -> None:
        self.events.append(_meta("process_name", pid, 0, name=process))
        self.events.append(_meta("process_sort_index", pid, 0, sort_index=pid))
        for tid, name in threads.items():
            self.events.append(_meta("thread_name", pid, tid, name=name))
            self.events.append(_meta("thread_sort_index", pid, tid, sort_index=tid))


def _meta(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _device_name(card: dict[str, Any]) -> str:
    return f"device: {card.get('device') or 'unknown'}" + (" (simulated)" if card.get("simulated") else "")


def _nearest_reserved(colour: str) -> str:
    """The reserved chrome://tracing colour for a ``#rrggbb`` of the page, by its strongest channel."""
    red, green, blue = (int(colour[at:at + 2], 16) for at in (1, 3, 5))
    if max(red, green, blue) - min(red, green, blue) < 24:
        return _RESERVED["grey"]
    if blue >= red and blue >= green:
        return _RESERVED["blue"]
    if green >= red:
        return _RESERVED["green"]
    return _RESERVED["orange"] if green > 96 else _RESERVED["red"]
