"""What a reader of recordings promises: what was saved comes back, and nothing a stranger sends can hurt or hang it."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.state import apply_event
from tests.viz.runs import file_of, lines_of, packed, small_run
from viz.recording import FORMAT, Limits, RecordingRefused, open_recording, replay, save_recording

SMALL = Limits(packed=64 * 1024, unpacked=256 * 1024, line=32 * 1024, lines=200, depth=12)


def refusal(data: bytes, limits: Limits = SMALL) -> RecordingRefused:
    with pytest.raises(RecordingRefused) as caught:
        open_recording(data, limits)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 300, message
    return caught.value


def test_a_saved_run_comes_back_equal(tmp_path):
    run = small_run()
    save_recording(tmp_path / "run.jsonl.gz", run)
    assert open_recording(tmp_path / "run.jsonl.gz") == run
    assert open_recording(gzip.decompress((tmp_path / "run.jsonl.gz").read_bytes())) == run, "unpacked text is read as well"


def test_the_same_run_gives_the_same_bytes():
    assert packed(small_run()) == packed(small_run())


def test_the_run_card_is_taken_from_the_state():
    card = small_run().header
    assert (card["format"], card["model"], card["device"], card["simulated"], card["seed"]) == (FORMAT, "tiny", "cpu", False, 3)


def test_replay_gives_the_state_after_each_event_and_leaves_the_recording_alone():
    run = small_run()
    before = json.dumps([run.snapshot, run.events])
    first = [json.loads(json.dumps(state)) for _, state in replay(run)]
    again = [json.loads(json.dumps(state)) for _, state in replay(run)]
    assert first == again and json.dumps([run.snapshot, run.events]) == before
    expected = json.loads(json.dumps(run.snapshot["state"]))
    for event in run.events:
        apply_event(expected, event)
    assert first[-1] == expected and expected["requests"]["r1"]["text"] == "é!"


def test_members_one_after_another_read_as_one_file():
    lines = lines_of(small_run())
    assert open_recording(file_of(lines[:2]) + file_of(lines[2:])) == small_run()


def test_first_and_last_step():
    assert (small_run().first_step, small_run().last_step) == (0, 2)


# --- files that are refused ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("cut", [1, 9, 40, -1])
def test_a_file_that_breaks_off_is_refused(cut):
    assert refusal(packed(small_run())[:cut]).code in ("recording_gzip", "recording_json", "recording_short", "recording_text")


def test_an_empty_file_is_refused():
    assert "run card" in str(refusal(b""))


def test_a_gzip_bomb_is_refused_without_being_unpacked():
    """30 MiB of one byte packs to 30 KiB; the reader must stop at its bound and not at the end of the data."""
    bomb = gzip.compress(b"\n" * (30 * 2**20))
    assert len(bomb) < SMALL.packed
    assert refusal(bomb).code in ("recording_json", "recording_size", "recording_lines")
    one_line = gzip.compress(b'{"format":"' + b"a" * (30 * 2**20))
    assert refusal(one_line).code == "recording_line"
    spread = gzip.compress(b"\n".join(lines_of(small_run())[:2]) + b"\n" + (b" " * 1000 + b"\n") * 30_000)
    assert refusal(spread).code in ("recording_json", "recording_size")


def test_the_unpacked_bound_holds_for_content_that_is_otherwise_good():
    run = small_run()
    run.events = [{"v": 1, "type": "engine", "room": "main", "seq": seq, "step": 0, "time": 0.0, "pad": "x" * 4000}
                  for seq in range(1, 150)]
    assert refusal(packed(run)).code == "recording_size"


def test_a_packed_file_over_the_bound_is_refused():
    assert refusal(b"{" * (SMALL.packed + 1)).code in ("recording_size", "recording_line")


def test_too_many_lines_are_refused():
    run = small_run()
    run.events = [{"type": "engine", "seq": seq} for seq in range(1, 300)]
    assert refusal(packed(run)).code == "recording_lines"


@pytest.mark.parametrize("depth", [13, 900, 100_000])
def test_deep_nesting_is_refused_by_its_line(depth):
    lines = lines_of(small_run())
    lines[3] = b'{"type":"engine","seq":2,"x":' + b"[" * depth + b"]" * depth + b"}"
    limits = Limits(line=2**20, depth=12)
    error = refusal(file_of(lines), limits)
    assert error.code == "recording_depth" and "Line 4" in str(error)


@pytest.mark.parametrize(("line", "code"), [
    (b"not json", "recording_json"), (b"[]", "recording_json"), (b'{"seq": NaN}', "recording_json"), (b"\xff\xfe", "recording_text"),
    (b'{"type": "step", "seq": 5}', "recording_gap"), (b'{"type": "step", "seq": true}', "recording_gap"),
    (b'{"type": "run", "seq": 2}', "recording_event"), (b"", "recording_json"),
    (b'{"type": "engine", "seq": ' + b"9" * 5000 + b"}", "recording_json"),
])
def test_a_bad_event_is_refused_by_its_line(line, code):
    lines = lines_of(small_run())
    lines[3] = line
    error = refusal(file_of(lines))
    assert error.code == code and "Line 4" in str(error)


@pytest.mark.parametrize(("change", "code"), [
    ({"format": "other"}, "recording_format"), ({"version": 2}, "recording_version"), ({"version": "1"}, "recording_version"),
    ({"version": True}, "recording_version"), ({"config": []}, "recording_card"), ({"model": 5}, "recording_card"),
])
def test_a_bad_run_card_is_refused(change, code):
    lines = lines_of(small_run())
    lines[0] = json.dumps({**json.loads(lines[0]), **change}).encode()
    assert refusal(file_of(lines)).code == code


def test_an_event_that_does_not_fit_the_state_is_refused_by_its_line():
    run = small_run()
    run.events[1]["slices"] = [["nobody", 0, 1, "decode", True]]
    with pytest.raises(RecordingRefused, match="Line 4"):
        list(replay(run))


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(RecordingRefused, match=r"none\.jsonl\.gz"):
        open_recording(tmp_path / "none.jsonl.gz")


# --- anything at all -------------------------------------------------------------------------------------------------

@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_with_a_sentence(data):
    for candidate in (data, gzip.compress(data), b"\x1f\x8b" + data):
        refusal(candidate)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_file_is_read_or_refused_with_a_sentence(data):
    whole = bytearray(packed(small_run()))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RecordingRefused):
        list(replay(open_recording(bytes(whole), SMALL)))


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                           lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=8)
sections = st.sampled_from(["requests", "transitions", "blocks", "slices", "tokens", "waiting", "prefix_hits", "counters", "retired",
                            "layout", "engine", "config", "step", "time"])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(sections, json_values, max_size=4))
def test_an_event_of_any_shape_is_replayed_or_refused(extra):
    """Sections with any content: the reducer must fail with a sentence, never with a traceback."""
    run = small_run()
    run.events = [{"type": "step", "step": 1, "time": 1.0, **extra, "seq": 1}]
    with contextlib.suppress(RecordingRefused):
        list(replay(open_recording(packed(run), SMALL)))


def test_no_pickle_and_no_code():
    """A pickle is refused as what it is: bytes that are no recording."""
    import pickle

    class Bad:
        def __reduce__(self):
            return (zlib.compress, (b"",))

    refusal(pickle.dumps(Bad()))
