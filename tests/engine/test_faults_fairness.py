"""Who waits, for how long, and for which stated reason."""

import random

import pytest

from tests.engine.shadow import tiny_spec
from tests.engine.watched import SMALL, Watched


def finish_step(room, name):
    return next(event["step"] for event in room.events for one in event.get("transitions", ())
                if one["id"] == name and one["to"] == "finished")


def slices_of(room, name):
    return [(event["step"], count) for event in room.events for who, _, count, _, _ in event.get("slices", ()) if who == name]


def prompt_beside_a_decoder(scheduler):
    room = Watched(num_blocks=64, max_batch_tokens=4, scheduler_type=scheduler)
    decoder, = room.submit(2, 30)
    room.step(2)
    room.submit(40, 2)
    before = len(room.outputs(decoder))
    room.step(10)
    return len(room.outputs(decoder)) - before


def test_fifo_never_starves_a_decoder_and_prefill_first_may():
    """A decoder running, a 40-token prompt, 4 tokens a step."""
    assert prompt_beside_a_decoder("fifo") == 10
    assert prompt_beside_a_decoder("prefill_first") < 5


def test_a_decoder_starved_by_prefill_first_is_told_so():
    room = Watched(num_blocks=64, max_batch_tokens=4, scheduler_type="prefill_first")
    decoder, = room.submit(2, 30)
    room.step(2)
    room.submit(40, 2)
    room.step(3)
    assert {"id": decoder, "reason": "token_budget"}.items() <= next(
        one for one in room.state["waiting"]["refused"] if one["id"] == decoder).items()
    room.run()


def test_a_very_long_prompt_progresses_beside_decode_streams():
    room = Watched(num_blocks=3000, max_batch_tokens=64, max_requests_per_batch=8)
    for _ in range(4):
        room.submit(4, 200)
    room.step(2)
    name, = room.submit(10_000, 1)
    room.step(20)
    taken = slices_of(room, name)
    assert len(taken) >= 19 and all(count == 60 for _, count in taken)


def test_a_short_request_behind_an_enormous_one_starts_within_a_few_steps_of_its_admission():
    """101 tokens behind 600,000: the long prompt takes what is left of each step, so the short one needs a slot and its turn."""
    room = Watched(tiny_spec(head_dim=8), num_blocks=2500, block_size=256, max_batch_tokens=65536, max_requests_per_batch=4)
    room.submit(600_000, 1)
    room.step()
    name, = room.submit(101, 2)
    steps = 0
    while not room.outputs(name):
        room.step()
        steps += 1
        assert steps < 15
    request = room.request(name)
    admitted = next(event["step"] for event in room.events for one in event.get("transitions", ())
                    if one["id"] == name and one["cause"] == "admitted")
    assert first_token_step(room, name) - admitted <= 2 and request.first_token is not None


def first_token_step(room, name):
    return next(event["step"] for event in room.events for one in event.get("tokens", ()) if one["id"] == name)


def test_a_hungry_request_at_the_head_is_waited_for_and_the_reason_is_shown():
    room = Watched(num_blocks=16, max_requests_per_batch=8, allow_block_sharing=False)
    for _ in range(2):
        room.submit(20, 8)
    room.step(4)
    hungry, = room.submit(48, 2)
    small = [room.submit(2, 2)[0] for _ in range(3)]
    room.step()
    waiting = room.state["waiting"]
    assert [one["reason"] for one in waiting["refused"] if one["id"] == hungry] == ["no_free_block"]
    refused = next(one for one in waiting["refused"] if one["id"] == hungry)
    assert refused["need"] > refused["have"] and (waiting["behind"], waiting["behind_count"]) == (hungry, 3)
    room.run()
    assert all(finish_step(room, hungry) <= finish_step(room, name) for name in small)


@pytest.mark.parametrize(("reason", "config", "script"), [
    ("request_cap", {"max_requests_per_batch": 1}, [(4, 9), (4, 9)]), ("token_budget", {"max_batch_tokens": 4}, [(4, 9), (8, 9)]),
    ("no_free_block", {"num_blocks": 4}, [(8, 5), (12, 2)]), ("safety_margin", {"num_blocks": 8, "safety_margin": 0.6}, [(16, 5), (2, 2)]),
    ("whole_prompt", {"chunked_prefill": False, "max_batch_tokens": 10}, [(8, 9), (8, 9)]),
    ("static_barrier", {"scheduler_type": "static"}, [(4, 9), None, (4, 2)]),
    ("kv_read_budget", {"max_kv_read_tokens": 20, "num_blocks": 16}, [(16, 5), (8, 5)]),
])
def test_the_branch_that_says_no_names_its_reason(reason, config, script):
    room = Watched(**{"allow_block_sharing": False, **config})
    for entry in script:
        if entry is None:
            room.step(2)
        else:
            last, = room.submit(*entry)
    seen = set()
    while room.engine.has_work:
        room.step()
        seen |= {one["reason"] for one in room.state["waiting"]["refused"] if one["id"] == last}
    assert reason in seen
    room.check_everyone_ended_well()


@pytest.mark.parametrize("seed", range(8))
def test_under_fifo_nobody_waits_longer_than_the_work_of_those_before(seed):
    """The stated bound: the oldest unfinished request moves at least one token a step, is never preempted, and computes each of
    its positions once. So a request ends at most sum(prompt + output) steps after its arrival, summed over itself and all older
    ones that had not ended (plus what they had lost by preemption before they became the oldest)."""
    choose = random.Random(seed)
    room = Watched(num_blocks=choose.randint(8, 20), max_batch_tokens=choose.randint(1, 12), max_requests_per_batch=choose.randint(1, 6))
    bound = {}
    for _ in range(14):
        open_work = sum(one.num_prompt_tokens + one.params.max_new_tokens for one in room.everyone.values() if not one.ended)
        prompt, new = choose.randint(1, 12), choose.randint(1, 20)
        name, = room.submit(prompt, new)
        bound[name] = room.engine.step_index + open_work + prompt + new
        room.step(choose.randint(0, 5))
    room.run()
    assert all(finish_step(room, name) <= limit for name, limit in bound.items())


@pytest.mark.parametrize("seed", range(4))
def test_fifo_admits_strictly_in_order_of_arrival(seed):
    choose = random.Random(seed)
    room = Watched(num_blocks=14)
    for _ in range(20):
        room.submit(choose.randint(1, 20), choose.randint(1, 12))
        room.step(choose.randint(0, 3))
    room.run()
    admitted = []
    for event in room.events:
        for one in event.get("transitions", ()):
            if one["cause"] == "admitted" and one["id"] not in admitted:
                admitted.append(one["id"])
    assert admitted == sorted(admitted, key=lambda name: room.request(name).ordinal)


@pytest.mark.parametrize(("scheduler", "steps", "idle"), [("static", 11, 7), ("fifo", 8, 1)])
def test_the_textbook_figure_is_counted_by_the_engine(scheduler, steps, idle):
    """Two slots, four requests of 8, 2, then 2 and 3 output tokens: static batching takes 11 steps and leaves 7 cells idle,
    continuous batching takes 8 and leaves 1."""
    room = Watched(**{**SMALL, "num_blocks": 32, "max_requests_per_batch": 2}, scheduler_type=scheduler)
    for tokens in (8, 2, 2, 3):
        room.submit(1, tokens)
    room.run()
    assert (room.counters["steps"], room.counters["idle_cells"]) == (steps, idle)
    assert room.counters["useful_cells"] == 15


def test_the_event_lists_the_rows_in_the_order_of_the_batch_that_was_executed():
    """One-token rows are packed first, whoever was served first: under prefill_first the two orders differ."""
    room = Watched(num_blocks=64, max_batch_tokens=16, scheduler_type="prefill_first")
    room.submit([5] * 3, 20)
    room.step(2)
    room.submit([7] * 40, 4)
    room.step(1)
    event = room.events[-1]
    assert [row[2] for row in event["slices"]] == sorted(row[2] for row in event["slices"])
    assert [row[3] for row in event["slices"]] == ["decode", "prefill"]
