"""Under pressure requests give way, newest first and as few as needed, come back, and keep their tokens and their times."""

import pytest

from engine.cache.swap_pool import SwapPool
from engine.request import RequestState
from tests.engine.watched import Watched

SWAP = 0.01         # GiB: room for every block of these tests
PRESSED = {"num_blocks": 12, "max_requests_per_batch": 6, "max_batch_tokens": 24, "allow_block_sharing": False}


def pressed(**config):
    """Six requests that fit at the start and cannot all grow to their end."""
    room = Watched(**{**PRESSED, **config})
    names = [room.submit(6, 24)[0] for _ in range(6)]
    return room, names


@pytest.mark.parametrize("space", [0.0, SWAP])
def test_everybody_finishes_under_pressure_with_the_right_tokens(space):
    room, names = pressed(cpu_offload_space=space)
    room.run()
    room.check_everyone_ended_well()
    assert all(len(room.outputs(name)) == 24 for name in names)
    assert room.counters["soft_resets" if not space else "offloads"] > 0
    assert room.counters["offloads"] == room.counters["restores"]


def test_a_full_swap_pool_falls_back_to_soft_reset():
    room, _ = pressed(cpu_offload_space=0.0007)        # 5 slots
    room.run()
    room.check_everyone_ended_well()
    assert 0 < room.engine.cache.layout.num_swap_slots < 8
    assert room.counters["offloads"] > 0 and room.counters["soft_resets"] > 0


def test_a_preempted_request_that_hits_its_own_old_blocks_is_recounted():
    room = Watched(**{**PRESSED, "allow_block_sharing": True})
    for _ in range(6):
        room.submit(6, 24)
    room.run()
    room.check_everyone_ended_well()
    back = [one for one in room.everyone.values() if one.num_soft_resets and one.prefix_hit_tokens]
    assert back, "nobody came back to its own blocks"


@pytest.mark.parametrize("scheduler", ["fifo", "prefill_first"])
def test_three_running_with_two_tokens_a_step_lose_nobody(scheduler):
    room = Watched(max_batch_tokens=2, max_requests_per_batch=3, scheduler_type=scheduler)
    names = [room.submit(3, 6)[0] for _ in range(5)]
    while room.engine.has_work:
        room.step()
        live = [name for name in names if not room.request(name).ended]
        scheduler_now = room.engine.scheduler
        assert sorted([*scheduler_now.active, *(one.id for one in scheduler_now.pending)]) == sorted(live)
    room.check_everyone_ended_well()


def test_many_starved_at_once_are_served_by_one_round_of_preemption():
    """Six requests reach a block boundary together with nothing free: enough are offloaded in that very step."""
    room = Watched(num_blocks=12, max_requests_per_batch=6, max_batch_tokens=64, allow_block_sharing=False, cpu_offload_space=SWAP)
    for _ in range(6):
        room.submit(5, 20)
    room.run()
    rounds = [sum(one["cause"] == "offload" for one in event.get("transitions", ())) for event in room.events]
    first = next(index for index, count in enumerate(rounds) if count)
    event = room.events[first]
    assert rounds[first] >= 2 and event["slices"], "not enough gave way in one step"
    assert rounds[first + 1:first + 3] == [0, 0]


def test_victims_are_the_newest_and_as_few_as_the_demand_needs():
    room, names = pressed(cpu_offload_space=SWAP)
    while not room.counters["offloads"]:
        room.step()
    offload = [one for event in room.events for one in event.get("transitions", ()) if one["cause"] == "offload"]
    assert [one["id"] for one in offload] == sorted((one["id"] for one in offload), key=lambda name: -room.request(name).ordinal)
    assert offload[0]["id"] == names[-1]
    last = offload[-1]
    freed_without_last = sum(one["blocks"] for one in offload[:-1])
    assert freed_without_last < last["demand"], "one more gave way than the demand needed"
    assert last["for"] and last["id"] not in last["for"]


def test_restored_content_equals_what_was_swapped_out_whatever_the_table_looks_like():
    """Requests of many sizes come and go, so tables are scattered; the shadow device compares each slot after the restore."""
    room = Watched(num_blocks=24, max_requests_per_batch=8, max_batch_tokens=16, allow_block_sharing=False, cpu_offload_space=SWAP)
    for index in range(24):
        room.submit(1 + index * 5 % 11, 4 + index * 7 % 29)
        room.step(2)
    room.run()
    room.check_everyone_ended_well()
    assert room.counters["restores"] > 3
    scattered = [one for event in room.events for one in event.get("blocks", ()) if one[0] == "swap_out"
                 and any(after - before != 1 for table in one[2] for before, after in zip(table, table[1:]))]
    assert scattered, "no fragmented table was ever swapped"


def test_the_last_active_request_is_never_preempted():
    """A step in which somebody gave way still computed somebody else."""
    room, _ = pressed(cpu_offload_space=0.0)
    room.run()
    preempting = [event for event in room.events if any(one["cause"] == "soft_reset" for one in event.get("transitions", ()))]
    assert preempting and all(event["slices"] for event in preempting)


def test_the_oldest_request_is_never_preempted_and_ends_as_if_alone():
    room, names = pressed(cpu_offload_space=0.0)
    room.run()
    oldest = room.request(names[0])
    assert oldest.num_soft_resets == oldest.num_offloads == 0


def test_a_request_preempted_twice_with_a_budget_below_its_length_still_ends():
    room = Watched(num_blocks=12, max_requests_per_batch=6, max_batch_tokens=5, allow_block_sharing=False)
    names = [room.submit(6, 30)[0] for _ in range(6)]
    room.run()
    room.check_everyone_ended_well()
    assert max(room.request(name).num_soft_resets for name in names) >= 2


@pytest.mark.parametrize("space", [0.0, SWAP])
def test_times_survive_preemption(space):
    room, names = pressed(cpu_offload_space=space)
    first_seen = {}
    while room.engine.has_work:
        room.step()
        for name in names:
            request = room.request(name)
            seen = (request.arrival, request.admitted, request.first_token, tuple(request.token_times))
            old = first_seen.get(name)
            if old is not None:
                assert seen[0] == old[0] and (old[1] is None or seen[1] == old[1]) and (old[2] is None or seen[2] == old[2])
                assert seen[3][:len(old[3])] == old[3]
            first_seen[name] = seen
    moved = [name for name in names if room.request(name).num_soft_resets + room.request(name).num_offloads]
    assert moved
    for name in moved:
        request = room.request(name)
        assert len(request.token_times) == 24 and request.first_token == request.token_times[0]


def test_a_preempted_request_returns_before_everybody_who_came_later():
    room, _ = pressed(cpu_offload_space=0.0)
    late, = room.submit(6, 2)
    while not room.counters["soft_resets"]:
        room.step()
    queue = [one.ordinal for one in room.engine.scheduler.pending]
    assert queue == sorted(queue) and len(queue) > 1 and room.engine.scheduler.pending[-1].id == late
    room.run()


def test_a_rebuild_loses_no_request_and_no_token():
    room, names = pressed(cpu_offload_space=SWAP)
    room.step(12)
    produced = {name: room.outputs(name) for name in names}
    room.configure(block_size=8, num_blocks=10)
    assert all(room.request(name).state in (RequestState.PENDING, RequestState.FINISHED) for name in names)
    room.run()
    room.check_everyone_ended_well()
    assert all(room.outputs(name)[:len(produced[name])] == produced[name] and len(room.outputs(name)) == 24 for name in names)


def test_a_host_slot_read_by_a_restore_is_not_written_in_the_same_step():
    """Copies out come before copies in: a slot handed out again too early would be overwritten before it is read."""
    pool = SwapPool(2)
    slots = pool.allocate(2)
    pool.release_after_step(slots[:1])
    assert pool.num_free == 0
    pool.begin_step()
    assert pool.num_free == 1
    pool.check_integrity(slots[1:])
