"""A trace must load in viewers that refuse overlapping slices, and must say only what the recording says."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

from tests.viz.runs import async_run, small_run, timed_run
from viz.palette import REQUEST_COLOURS, request_colour
from viz.perfetto import DEVICE, REQUESTS, STEPS, chrome_trace


def lanes(trace):
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def test_a_request_lane_tells_waiting_prefill_and_decode_in_order():
    lane = lanes(chrome_trace(timed_run()))[REQUESTS, 1]
    assert [event["name"] for event in lane] == ["pending", "prefill 3", "decode"]
    assert [(event["ts"], event["dur"]) for event in lane] == [(500_000, 400_000), (920_000, 80_000), (1_020_000, 480_000)]
    assert lane[1]["args"] == {"step": 1, "positions": [0, 3], "colour": REQUEST_COLOURS[0]}


def test_the_end_is_an_instant_with_its_reason():
    instants = [event for event in chrome_trace(timed_run())["traceEvents"] if event["ph"] == "i"]
    assert [(event["name"], event["args"]["reason"]) for event in instants] == [("length", "length")]


def test_slices_of_a_lane_never_overlap():
    for run in (small_run(), timed_run(), async_run()):
        for lane in lanes(chrome_trace(run)).values():
            for earlier, later in zip(lane, lane[1:], strict=False):
                assert later["ts"] >= earlier["ts"] + earlier["dur"] - 1e-6, (earlier, later)


def test_an_async_step_is_drawn_at_its_own_interval():
    trace = lanes(chrome_trace(async_run()))
    assert [event["name"] for event in trace[STEPS, DEVICE]] == ["step 1"]
    assert [event["args"]["step"] for event in trace[REQUESTS, 1] if event["cat"] != "waiting"] == [1], "step 2 never came back"


def test_counters_follow_the_state():
    counters = defaultdict(list)
    for event in chrome_trace(timed_run())["traceEvents"]:
        if event["ph"] == "C":
            counters[event["name"]].append(event["args"])
    assert counters["blocks"] == [{"owned": 1, "cached": 0, "free": 3}, {"owned": 0, "cached": 0, "free": 4}]
    assert counters["requests"] == [{"active": 1, "waiting": 0}, {"active": 0, "waiting": 0}]


def test_the_document_is_plain_json_and_names_its_lanes():
    trace = json.loads(json.dumps(chrome_trace(timed_run()), allow_nan=False))
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert names[REQUESTS, 1] == "r1" and names[STEPS, DEVICE] == "device: cpu"


def test_the_colours_are_those_of_the_page():
    source = (Path(__file__).parents[2] / "viz" / "static" / "palette.js").read_text()
    light = re.search(r"const LIGHT = \[(.*?)\]", source).group(1)
    assert tuple(re.findall(r"#[0-9a-f]{6}", light)) == REQUEST_COLOURS
    assert request_colour(len(REQUEST_COLOURS)) == REQUEST_COLOURS[0]
