"""The state that the event stream describes, and the reducer that rebuilds it.

``apply_event(state, event)`` is the Python twin of ``viz/static/reduce.js``. Both must give exactly what
``Engine.snapshot()`` gives: that is the law of this project, and tests hold both to it. The document and every section of
an event are described in ``ARCHITECTURE.md`` and in ``engine/schema/events.v1.json``.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

VERSION = 1

COUNTERS = (
    "steps", "prompt_tokens", "output_tokens", "padding_tokens", "prefix_hit_tokens", "prefix_query_tokens", "offloads",
    "soft_resets", "restores", "swap_bytes_out", "swap_bytes_in", "copies", "idle_cells", "useful_cells", "captures",
    "replays", "eager_steps", "finished", "cancelled", "failed", "recomputed_tokens",
)

ENDED_STATES = ("finished", "cancelled", "failed")


class SequenceGap(Exception):
    """An event arrived that does not follow the state's ``seq``: events were lost, ask for a snapshot."""


def empty_state() -> dict[str, Any]:
    """The state before the first event."""
    return {
        "seq": 0, "step": 0, "time": 0.0, "engine": {"status": "loading"}, "config": None, "layout": None,
        "requests": {}, "queue": [], "active": [], "ended": [], "hashes": {},
        "waiting": {"refused": [], "behind": None, "behind_count": 0}, "last": empty_last(),
        "counters": dict.fromkeys(COUNTERS, 0),
    }


def empty_last() -> dict[str, Any]:
    """What ``last`` holds before any step."""
    return {"slices": [], "results_of": None, "budget": None, "graph": None, "timing": None}


def new_request(record: dict[str, Any]) -> dict[str, Any]:
    """A request's part of the state, from the record in a ``requests`` section."""
    return {
        "id": record["id"], "ordinal": record["ordinal"], "prompt": record["prompt"],
        "prompt_len": len(record["prompt_tokens"]), "params": record["params"], "arrival": record["arrival"],
        "arrival_step": record["arrival_step"], "parent": record["parent"], "visitor": record["visitor"],
        "state": "pending", "offloaded": False, "computed": 0, "outputs": 0, "text": "", "tables": [], "slots": [],
        "admitted": None, "first_token": None, "finished": None, "reason": None, "token_times": [],
        "prefix_hit_tokens": 0, "offloads": 0, "soft_resets": 0, "holds_slot": False,
    }


def apply_event(state: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """Bring ``state`` up to ``event``, in place, and return it.

    A ``snapshot`` message replaces the state. Raises :class:`SequenceGap` for any other event whose ``seq`` is not the next.
    """
    if event["type"] == "snapshot":
        state.clear()
        state.update(event["state"])
        return state
    if event["seq"] != state["seq"] + 1:
        raise SequenceGap(f"expected event {state['seq'] + 1}, got {event['seq']}")
    state["seq"] = event["seq"]
    state["step"] = event["step"]
    state["time"] = event["time"]
    if "engine" in event:
        state["engine"] = {**state["engine"], **event["engine"]}
    if "config" in event:
        state["config"] = event["config"]
    if "layout" in event:
        _new_layout(state, event["layout"])
    requests = state["requests"]
    for record in event.get("requests", ()):
        requests[record["id"]] = new_request(record)
        state["queue"].append(record["id"])
    for transition in event.get("transitions", ()):
        _apply_transition(state, transition)
    for operation in event.get("blocks", ()):
        _apply_block_operation(state, operation)
    for request_id, start, count, kind, _samples in event.get("slices", ()):
        if kind != "padding":
            requests[request_id]["computed"] = start + count
    for hit in event.get("prefix_hits", ()):
        requests[hit["id"]]["prefix_hit_tokens"] += hit["tokens"]
    for token in event.get("tokens", ()):
        request = requests[token["id"]]
        request["outputs"] += 1
        request["text"] += token["text"]
        request["token_times"].append(event["time"])
        if request["first_token"] is None:
            request["first_token"] = event["time"]
    if "waiting" in event:
        state["waiting"] = event["waiting"]
    if event["type"] == "step":
        last = empty_last()
        last.update({name: event[name] for name in last if name in event})
        state["last"] = last
    state["counters"].update(event.get("counters", {}))
    for request_id in event.get("retired", ()):
        del requests[request_id]
        state["ended"].remove(request_id)
    return state


def _new_layout(state: dict[str, Any], layout: dict[str, Any]) -> None:
    """A fresh cache: nothing is owned and nothing is known any more."""
    state["layout"] = layout
    state["hashes"] = {}
    for request in state["requests"].values():
        request["tables"] = []
        request["slots"] = []


def _apply_transition(state: dict[str, Any], transition: dict[str, Any]) -> None:
    request_id, cause, target = transition["id"], transition["cause"], transition["to"]
    request = state["requests"][request_id]
    request["state"] = target
    if cause == "admitted":
        state["queue"].remove(request_id)
        state["active"].append(request_id)
        if request["admitted"] is None:
            request["admitted"] = transition["time"]
    elif cause == "restore":
        request["offloaded"] = False
        state["queue"].remove(request_id)
        state["active"].append(request_id)
    elif cause in ("offload", "soft_reset", "rebuild"):
        if cause == "offload":
            request["offloaded"] = True
            request["offloads"] += 1
        else:
            request["offloaded"] = False
            request["computed"] = 0
            request["soft_resets"] += cause == "soft_reset"
        if request_id in state["active"]:
            state["active"].remove(request_id)
            _enqueue_by_arrival(state, request_id)
    elif cause == "static_release":
        request["holds_slot"] = False
        state["active"].remove(request_id)
        state["ended"].append(request_id)
    elif target in ENDED_STATES:
        request["reason"] = transition["reason"]
        request["finished"] = transition["time"]
        request["offloaded"] = False
        if transition.get("holds_slot"):
            request["holds_slot"] = True
            return
        state["queue" if request_id in state["queue"] else "active"].remove(request_id)
        state["ended"].append(request_id)


def _enqueue_by_arrival(state: dict[str, Any], request_id: str) -> None:
    """A preempted request returns to the queue at the place of its original arrival."""
    requests = state["requests"]
    insort(state["queue"], request_id, key=lambda name: requests[name]["ordinal"])


def _apply_block_operation(state: dict[str, Any], operation: list[Any]) -> None:
    name = operation[0]
    requests, hashes = state["requests"], state["hashes"]
    if name in ("alloc", "share"):
        _table(state, operation[1], operation[2]).extend(operation[3])
    elif name == "copy":
        _, request_id, group, index, _source, target = operation
        _table(state, request_id, group)[index] = target
    elif name == "free":
        requests[operation[1]]["tables"] = []
        requests[operation[1]]["slots"] = []
    elif name == "hash":
        hashes[str(operation[1])] = [operation[2], operation[3]]
    elif name == "demote":
        for block in operation[1]:
            del hashes[str(block)]
    elif name == "forget":
        hashes.clear()
    elif name == "swap_out":
        requests[operation[1]]["tables"] = []
        requests[operation[1]]["slots"] = [list(slots) for slots in operation[3]]
    elif name == "swap_in":
        requests[operation[1]]["tables"] = [list(blocks) for blocks in operation[3]]
        requests[operation[1]]["slots"] = []
    else:
        raise ValueError(f"unknown block operation {name!r}")


def _table(state: dict[str, Any], request_id: str, group: int) -> list[int]:
    tables = state["requests"][request_id]["tables"]
    if not tables:
        tables.extend([] for _ in state["layout"]["groups"])
    return tables[group]


def block_owners(state: dict[str, Any]) -> dict[int, list[str]]:
    """Physical block → ids of the requests whose tables contain it."""
    owners: dict[int, list[str]] = {}
    for request_id, request in state["requests"].items():
        for table in request["tables"]:
            for block in table:
                owners.setdefault(block, []).append(request_id)
    return owners


def block_counts(state: dict[str, Any]) -> dict[str, int]:
    """How many blocks are owned, cached (initialized, no owner) and free (uninitialized)."""
    owners = block_owners(state)
    cached = sum(1 for block in state["hashes"] if int(block) not in owners)
    total = state["layout"]["num_blocks"] if state["layout"] else 0
    return {"owned": len(owners), "cached": cached, "free": total - len(owners) - cached, "total": total}
