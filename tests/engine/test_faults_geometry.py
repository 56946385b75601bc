"""Prompts and caches of awkward sizes: refused by name where nothing can help, served to the end everywhere else."""

import pytest

from engine.errors import ConfigRefused, RequestRefused
from tests.engine.shadow import tiny_spec
from tests.engine.watched import Watched


def test_a_request_that_can_never_fit_is_refused_by_name_and_the_engine_serves_on():
    room = Watched(num_blocks=2)
    with pytest.raises(RequestRefused, match="needs 3 cache blocks and the cache has 2") as refusal:
        room.submit(8, 4)
    assert refusal.value.code == "never_fits"
    name, = room.submit(4, 5)
    room.run()
    assert room.request(name).finish_reason == "length"


def test_a_prompt_too_long_for_the_cache_does_not_block_the_small_one_behind_it():
    room = Watched(num_blocks=2)
    with pytest.raises(RequestRefused):
        room.submit(12, 2)
    name, = room.submit(2, 2)
    room.run()
    assert len(room.outputs(name)) == 2


def test_five_prompts_larger_than_the_cache_get_five_refusals_and_no_hang():
    room = Watched(num_blocks=49, block_size=16)
    for _ in range(5):
        with pytest.raises(RequestRefused, match="needs 63 cache blocks and the cache has 49"):
            room.submit(1002, 1)
    assert not room.engine.has_work and room.step() is None


@pytest.mark.parametrize("times", [513])
def test_a_prompt_of_exactly_one_block_repeated_always_leaves_a_token_to_compute(times):
    room = Watched(num_blocks=8, max_requests_per_batch=4)
    prompt = [7, 8, 9, 10]
    names = []
    for start in range(0, times, 19):
        for _ in range(min(19, times - start)):
            names += room.submit(prompt, 1, seed=5)
        room.run()
    assert {tuple(room.outputs(name)) for name in names} == {tuple(room.outputs(names[0]))} and len(names) == times
    assert all(count >= 1 for event in room.events for _, _, count, _, _ in event.get("slices", ()))


@pytest.mark.parametrize("length", [8, 12, 16])
def test_repeated_prompts_of_whole_blocks_hit_all_but_the_last_block(length):
    room = Watched()
    first, = room.submit([20 + place for place in range(length)], 3, seed=1)
    room.run()
    second, = room.submit([20 + place for place in range(length)], 3, seed=1)
    room.run()
    assert room.request(second).prefix_hit_tokens == length - 4
    assert room.outputs(first) == room.outputs(second)


@pytest.mark.parametrize(("prompt", "new", "fits"), [(8, 9, True), (8, 10, False), (16, 1, True), (17, 1, False), (1, 16, True), (16, 0, True)])
def test_prompt_and_output_of_exactly_the_capacity_are_admitted(prompt, new, fits):
    """16 slots: prompt + output − 1 must fit, since the last token is never written."""
    room = Watched(num_blocks=4)
    if not fits:
        with pytest.raises(RequestRefused):
            room.submit(prompt, new)
        return
    name, = room.submit(prompt, new)
    room.run()
    assert len(room.outputs(name)) == new


@pytest.mark.parametrize("rest", [1, 2, 3, 5])
def test_a_prefix_hit_that_leaves_a_short_rest_schedules_no_empty_chunk(rest):
    room = Watched(num_blocks=32, max_batch_tokens=4)
    prompt = [30 + place for place in range(32)]
    room.submit(prompt, 1)
    room.run()
    name, = room.submit([*prompt, *range(500, 500 + rest)], 2)
    room.run()
    assert room.request(name).prefix_hit_tokens == 32
    assert all(count > 0 for event in room.events for _, _, count, _, _ in event.get("slices", ()))


@pytest.mark.parametrize("scheduler", ["fifo", "prefill_first"])
@pytest.mark.parametrize("margin", [None, 0.0])
def test_a_very_long_prompt_beside_a_nearly_full_cache_makes_progress_every_step(scheduler, margin):
    """Four running at 90 % of the cache, then a prompt of most of it, in slices: no admit–preempt loop."""
    room = Watched(num_blocks=40, max_batch_tokens=8, max_requests_per_batch=8, scheduler_type=scheduler, safety_margin=margin,
                   allow_block_sharing=False)
    for _ in range(4):
        room.submit(28, 8)
    while room.engine.cache.num_free > 4 and room.engine.has_work:
        room.step()
    name, = room.submit(120, 4)
    before = len(room.events)
    room.run()
    steps = [event for event in room.events[before:] if event["type"] == "step"]
    assert all(event.get("slices") for event in steps), "a step in which nobody moved"
    assert room.transitions(name).count("admitted") == 1
    assert room.counters["recomputed_tokens"] == 0


def test_one_token_a_step_is_slow_but_correct():
    room = Watched(max_batch_tokens=1)
    names = [room.submit(5, 3)[0] for _ in range(3)]
    room.run()
    room.check_everyone_ended_well()
    assert all(len(room.outputs(name)) == 3 for name in names)


@pytest.mark.parametrize("block_size", [4, 5, 7, 10])
@pytest.mark.parametrize("prompt", [1, 9, 10, 11, 25])
def test_sliding_windows_wrap_at_position_modulo_window(block_size, prompt):
    """Answers far longer than the window; the shadow device checks every read at ``position % window``."""
    room = Watched(tiny_spec(window=10), block_size=block_size, num_blocks=8)
    names = [room.submit(prompt, 40)[0] for _ in range(2)]
    room.run()
    assert all(len(room.outputs(name)) == 40 for name in names)
    assert room.executor.checked_positions > 500
    assert max(len(table) for event in room.events for one in event.get("blocks", ()) if one[0] == "alloc" for table in [one[3]]) <= 3


def test_a_sliding_model_needs_only_its_window_however_long_the_answer():
    room = Watched(tiny_spec(window=8), num_blocks=2)
    name, = room.submit(8, 200)
    room.run()
    assert len(room.outputs(name)) == 200


def test_a_smaller_cache_that_would_strand_a_request_is_refused_and_everything_goes_on():
    room = Watched(num_blocks=10)
    name, = room.submit(20, 15)
    room.step(2)
    with pytest.raises(ConfigRefused, match=name):
        room.configure(num_blocks=4)
    room.configure(num_blocks=9)
    room.run()
    assert len(room.outputs(name)) == 15
