"""Small recordings written out by hand, for tests that need no engine."""

from __future__ import annotations

import gzip
import io

from engine.state import empty_state
from viz.recording import Recording, run_card, save_recording


def small_run() -> Recording:
    """A run of one request over three steps, written out by hand so that these tests need no engine."""
    state = empty_state() | {"engine": {"status": "ready", "model": "tiny", "device": "cpu", "dtype": "float32", "simulated": False},
                             "config": {"seed": 3}, "layout": {"num_blocks": 4, "block_size": 4, "groups": [{"index": 0}]}}
    snapshot = {"v": 1, "type": "snapshot", "room": "main", "seq": 0, "state": state}
    record = {"id": "r1", "ordinal": 0, "prompt": "<img src=x onerror=alert(1)>", "prompt_tokens": [1, 2, 3], "params": {},
              "arrival": 0.5, "arrival_step": 0, "parent": None, "visitor": None, "seed": 1}
    base = {"v": 1, "room": "main"}
    events = [
        {**base, "type": "submit", "seq": 1, "step": 0, "time": 0.5, "requests": [record]},
        {**base, "type": "step", "seq": 2, "step": 1, "time": 1.0, "blocks": [["alloc", "r1", 0, [0]]],
         "transitions": [{"id": "r1", "from": "pending", "to": "prefilling", "cause": "admitted", "time": 0.9}],
         "slices": [["r1", 0, 3, "prefill", True]], "tokens": [{"id": "r1", "token": 9, "text": "é"}], "results_of": 1},
        {**base, "type": "step", "seq": 3, "step": 2, "time": 1.5, "slices": [["r1", 3, 1, "decode", True]],
         "tokens": [{"id": "r1", "token": 8, "text": "!"}], "results_of": 2, "blocks": [["free", "r1"]],
         "transitions": [{"id": "r1", "from": "prefilling", "to": "finished", "cause": "length", "reason": "length", "time": 1.5}]},
    ]
    return Recording(run_card(snapshot, started="2026-01-01T00:00:00Z"), snapshot, events)


def timed_run():
    run = small_run()
    run.events[1]["timing"] = {"schedule": [0.9, 0.91], "prepare": [1, 0.91, 0.92], "device": [1, 0.92, 1.0], "clock": "real"}
    run.events[2]["timing"] = {"schedule": [1.0, 1.01], "prepare": [2, 1.01, 1.02], "device": [2, 1.02, 1.5], "clock": "real"}
    run.events[1]["waiting"] = {"refused": [], "behind": None, "behind_count": 0}
    return run


def async_run():
    """With async batching an event brings the device interval of the step before it."""
    run = timed_run()
    run.events[1]["timing"] = {"schedule": [0.9, 0.91], "prepare": [1, 0.91, 0.92], "device": None, "clock": "real"}
    run.events[2]["timing"] = {"schedule": [0.93, 0.94], "prepare": [2, 0.94, 0.95], "device": [1, 0.92, 1.0], "clock": "real"}
    return run


def packed(recording: Recording) -> bytes:
    """The recording as the bytes of its file."""
    out = io.BytesIO()
    save_recording(out, recording)
    return out.getvalue()


def lines_of(recording: Recording) -> list[bytes]:
    return gzip.decompress(packed(recording)).splitlines()


def file_of(lines: list[bytes]) -> bytes:
    return gzip.compress(b"\n".join(lines) + b"\n")
