"""Whenever somebody leaves, their blocks come back at once; bad input is refused alone."""

import pytest

from engine.errors import RequestRefused
from engine.request import RequestState
from engine.sampling_params import SamplingParams
from tests.engine.watched import Watched

ASYNC = {"use_cuda_graph": True, "use_async_batching": True}


def bring_to(moment, **config):
    """A room and a request that is pending, mid-prefill, decoding or offloaded."""
    room = Watched(num_blocks=12, max_batch_tokens=6, max_requests_per_batch=4, cpu_offload_space=0.01, allow_block_sharing=False, **config)
    if moment == "pending":
        room.submit(30, 10)
        name, = room.submit(40, 2)
        room.step(2)
        assert room.request(name).state is RequestState.PENDING
    elif moment == "mid-prefill":
        name, = room.submit(20, 4)
        room.step(2)
        assert room.request(name).state is RequestState.PREFILLING
    elif moment == "decoding":
        name, = room.submit(4, 20)
        room.step(4)
        assert room.request(name).state is RequestState.DECODING
    else:
        names = [room.submit(6, 24)[0] for _ in range(4)]
        while not any(room.request(one).offloaded for one in names):
            room.step()
        name = next(one for one in names if room.request(one).offloaded)
    return room, name


@pytest.mark.parametrize("mode", [{}, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("moment", ["pending", "mid-prefill", "decoding", "offloaded"])
def test_a_cancel_at_any_moment_is_one_terminal_event_and_gives_the_blocks_back(moment, mode):
    room, name = bring_to(moment, **mode)
    assert room.cancel(name)
    request = room.request(name)
    assert request.state is RequestState.CANCELLED and not request.tables and not request.swap_slots
    assert not room.cancel(name) and room.terminal[name] == 1
    room.step()
    assert name not in room.engine.scheduler.requests
    room.run()
    room.check_everyone_ended_well()
    assert room.engine.cache.swap.num_free + len(room.engine.cache.swap._free_after_step) == room.engine.cache.layout.num_swap_slots


def test_cancel_all_reaches_queued_requests_beyond_the_slots():
    room = Watched(max_requests_per_batch=2)
    names = [room.submit(4, 10)[0] for _ in range(9)]
    room.step(3)
    assert sorted(room.cancel_all()) == sorted(names)
    assert not room.engine.scheduler.requests and room.engine.cache.num_free == 16
    assert room.step() is None or not room.engine.has_work


def test_cancelling_the_last_unfinished_member_of_a_static_batch_lets_the_next_batch_in():
    room = Watched(scheduler_type="static", max_requests_per_batch=2)
    short, long = room.submit(2, 2)[0], room.submit(2, 30)[0]
    later, = room.submit(2, 2)
    room.step(4)
    assert room.request(short).holds_slot
    room.cancel(long)
    room.run(50)
    assert len(room.outputs(later)) == 2


def test_a_static_batch_that_no_longer_fits_gives_its_finished_slots_back():
    """Admitted by FIFO, finished under static: the held slots keep blocks that the last member needs."""
    room = Watched(num_blocks=13, max_requests_per_batch=3, max_batch_tokens=24, allow_block_sharing=False)
    long, = room.submit(4, 40)
    for _ in range(2):
        room.submit(4, 8)
    room.step(2)
    room.configure(scheduler_type="static")
    room.run(300)
    assert len(room.outputs(long)) == 40


@pytest.mark.parametrize("mode", [{}, ASYNC], ids=["sync", "async"])
def test_cancelling_a_parent_leaves_its_samples_whole(mode):
    room = Watched(num_blocks=40, max_requests_per_batch=8, **mode)
    names = room.submit(9, 20, n=3)
    room.step(1)
    room.cancel(names[0])
    room.run()
    assert [len(room.outputs(name)) for name in names[1:]] == [20, 20]


@pytest.mark.parametrize("prompt", [[], "", None, "hello", [1, "2"], [1.5], [True], [-1], [1000], (1, 2), {"a": 1}])
def test_a_bad_prompt_is_refused_alone_and_no_other_request_notices(prompt):
    room = Watched()
    good, = room.submit(5, 6, seed=9)
    room.step()
    before = (room.state["seq"], len(room.engine.requests))
    with pytest.raises(RequestRefused) as refusal:
        room.engine.submit(prompt, SamplingParams())
    assert str(refusal.value).endswith(".")
    room.check()
    assert (room.state["seq"], len(room.engine.requests)) == before
    room.run()
    alone = Watched()
    other, = alone.submit(5, 6, seed=9)
    alone.run()
    assert room.outputs(good) == alone.outputs(other)


def test_one_seed_for_many_prompts_gives_each_its_own():
    room = Watched()
    seeds = []
    for index in range(5):
        name, = room.engine.submit([5, 6, 7], SamplingParams(max_new_tokens=4, seed=4, temperature=1.0), seed_index=index)
        seeds.append(room.engine.requests[name].seed)
    assert len(set(seeds)) == 5 and seeds[0] == 4


def test_without_a_seed_each_request_derives_its_own_and_a_repeat_derives_the_same():
    seeds = []
    for _ in range(2):
        room = Watched()
        names = [name for _ in range(3) for name in room.submit([5, 6, 7], 2, n=2)]
        seeds.append([room.request(name).seed for name in names])
        room.run()
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 6


def test_duplicate_ids_are_refused_and_the_first_goes_on():
    room = Watched()
    room.engine.submit([5, 6], SamplingParams(max_new_tokens=3), request_id="mine")
    with pytest.raises(RequestRefused, match="mine"):
        room.engine.submit([7, 8], SamplingParams(max_new_tokens=3), request_id="mine")
    room.check()
    room.run()
    assert room.engine.requests["mine"].num_output_tokens == 3


def test_zero_new_tokens_ends_at_once_without_a_step():
    room = Watched()
    name, = room.submit(5, 0)
    assert room.request(name).state is RequestState.FINISHED and not room.engine.has_work and room.outputs(name) == []


def test_one_new_token_with_async_ends_after_the_prefill_without_a_useless_step():
    room = Watched(**ASYNC)
    name, = room.submit(5, 1)
    turns = room.run()
    launched = [event for event in room.events if event.get("slices")]
    assert len(launched) == 1 and turns <= 2 and len(room.outputs(name)) == 1


def test_async_with_an_idle_pause_before_the_first_request_waits_and_works():
    room = Watched(**ASYNC)
    assert room.step() is None
    room.executor.clock.advance_to(2.0)
    assert room.step() is None
    name, = room.submit(5, 5)
    room.run()
    assert room.request(name).arrival == 2.0 and len(room.outputs(name)) == 5


def test_async_stops_a_request_at_its_end_token_and_drops_the_token_computed_ahead():
    room = Watched(stop_after=(3, 3), **ASYNC)
    name, = room.submit(5, 20)
    room.run()
    assert room.request(name).finish_reason == "stop" and len(room.outputs(name)) == 3


@pytest.mark.parametrize("scheduler", ["fifo", "prefill_first", "static"])
def test_identical_prompts_with_identical_seeds_give_identical_outputs(scheduler):
    room = Watched(num_blocks=40, max_requests_per_batch=5, scheduler_type=scheduler, use_cuda_graph=True)
    names = [room.submit([9, 8, 7, 6, 5], 10, seed=1)[0] for _ in range(5)]
    room.run()
    assert len({tuple(room.outputs(name)) for name in names}) == 1
