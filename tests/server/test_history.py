"""The bounded event log: what is kept, what can be resumed, and what must never be mixed."""

from __future__ import annotations

import pytest

from engine import protocol
from engine.history import History, unpacked


def filled(count: int, every: int = 10, max_bytes: int = 10**6, start: int = 5) -> History:
    history = History(max_bytes=max_bytes, checkpoint_every=every, pack=True)
    history.begin(start, f"state {start}", "a")
    for seq in range(start + 1, start + count + 1):
        history.append(seq, f"event {seq}")
        if history.wants_checkpoint:
            history.checkpoint(seq, f"state {seq}")
    return history


def replayed(history: History, start: int) -> list[str]:
    """A checkpoint and every event after it, as the page process sends them."""
    return [text for index, held in enumerate(history.held(start)) for text in unpacked(held)[min(index, 1) :]]


@pytest.mark.parametrize("seq", [5, 6, 14, 15, 16, 27, 30])
def test_resuming_gives_exactly_what_was_missed(seq):
    assert filled(25).since(seq, "a") == [f"event {number}" for number in range(seq + 1, 31)]


def test_another_life_or_an_unknown_number_cannot_be_resumed():
    history = filled(25)
    assert history.since(10, "b") is None
    assert history.since(10, "") is None
    assert history.since(4, "a") is None
    assert history.since(31, "a") is None


@pytest.mark.parametrize("start, first", [(0, 5), (5, 5), (14, 5), (15, 15), (24, 15), (29, 25), (99, 25)])
def test_a_replay_starts_at_the_newest_checkpoint_that_is_old_enough(start, first):
    texts = replayed(filled(25), start)
    assert texts[0] == f"state {first}"
    assert texts[1:] == [f"event {number}" for number in range(first + 1, 31)]


def test_memory_is_bounded_and_whole_segments_go():
    history = filled(1000, max_bytes=500)
    assert history.size <= 500 + 200
    assert history.size == sum(segment.size for segment in history.segments)
    assert replayed(history, 0)[0] == f"state {history.first}"
    assert history.since(history.first, "a") == [f"event {number}" for number in range(history.first + 1, 1006)]


def test_a_gap_is_an_error_of_the_caller():
    history = filled(3)
    with pytest.raises(ValueError):
        history.append(99, "event")
    with pytest.raises(ValueError):
        history.checkpoint(2, "state")


def test_what_is_old_takes_a_fraction_of_its_text_and_comes_back_unchanged():
    texts = [protocol.encode({"type": "step", "seq": seq, "tokens": [{"id": f"r{seq % 7}", "text": f"“{seq}” 토큰\n"}], "blocks": []})
             for seq in range(1, 1025)]
    history = History(max_bytes=10**9, checkpoint_every=256, pack=True)
    history.begin(0, protocol.encode({"type": "snapshot", "seq": 0}))
    for seq, text in enumerate(texts, 1):
        history.append(seq, text)
        if history.wants_checkpoint:
            history.checkpoint(seq, protocol.encode({"type": "snapshot", "seq": seq}))
    assert history.since(0, history.life) == texts
    assert sum(len(segment.packed) for segment in history.segments if segment.packed) < sum(map(len, texts)) / 4
    assert not any(segment.events for segment in list(history.segments)[:-1])


def test_what_comes_after_a_reader_began_does_not_reach_it():
    history = filled(23)
    held = history.held(0)
    for seq in range(29, 60):
        history.append(seq, f"event {seq}")
        if history.wants_checkpoint:
            history.checkpoint(seq, f"state {seq}")
    assert [text for index, each in enumerate(held) for text in unpacked(each)[min(index, 1) :]] == ["state 5", *(f"event {number}" for number in range(6, 29))]
