"""Shared prefixes save work and never change a token; where they cannot be, the screen is told why."""

import random

import pytest

from engine.state import block_counts
from tests.engine.shadow import tiny_spec
from tests.engine.watched import Watched

SYSTEM = [40 + 7 * place % 800 for place in range(24)]


def test_the_same_prefix_prefilled_in_the_same_steps_reads_no_freed_page():
    """The shadow device compares every position that is read; two writers of one content must not share a page too early."""
    room = Watched(num_blocks=24, max_batch_tokens=8)
    names = [room.submit([*SYSTEM, 700 + index], 6, seed=3)[0] for index in range(4)]
    room.run()
    room.check_everyone_ended_well()
    cold = Watched(num_blocks=24, max_batch_tokens=8, allow_block_sharing=False)
    assert [cold.submit([*SYSTEM, 700 + index], 6, seed=3) for index in range(4)]
    cold.run()
    assert [room.outputs(name) for name in names] == [cold.outputs(name) for name in cold.everyone]


@pytest.mark.parametrize("policy", ["most_recent", "lru"])
def test_a_long_system_prompt_shared_one_after_another_equals_a_fresh_run_each_time(policy):
    room = Watched(num_blocks=16, demotion_policy=policy)
    for index in range(12):
        prompt = [*SYSTEM, 600 + index, 601 + index]
        name, = room.submit(prompt, 8, seed=index)
        room.run()
        fresh = Watched(num_blocks=16, allow_block_sharing=False)
        other, = fresh.submit(prompt, 8, seed=index)
        fresh.run()
        assert room.outputs(name) == fresh.outputs(other)
        assert room.request(name).prefix_hit_tokens == (24 if index else 0)


def test_two_contents_with_one_hash_are_a_miss():
    room = Watched(num_blocks=32)
    room.engine.cache.prefix.shorten = lambda digest: b"same key"
    room.submit([*range(100, 112)], 3)
    room.run()
    second, = room.submit([*range(300, 312)], 3)
    room.run()
    assert room.request(second).prefix_hit_tokens == 0
    room.check_everyone_ended_well()


def test_a_block_is_only_reused_behind_the_same_past():
    """Blocks 2 are equal, blocks 1 are not: no hit."""
    room = Watched(num_blocks=32)
    room.submit([1, 2, 3, 4, 50, 51, 52, 53, 9], 2)
    room.run()
    name, = room.submit([4, 3, 2, 1, 50, 51, 52, 53, 9], 2)
    room.run()
    assert room.request(name).prefix_hit_tokens == 0


@pytest.mark.parametrize(("spec", "word"), [({"window": 8}, "sliding"), ({"layers": 6, "window": 8, "full_every": 3}, "sliding")])
def test_a_model_with_sliding_layers_says_why_the_prefix_cache_is_off(spec, word):
    room = Watched(tiny_spec(**spec), num_blocks=40)
    status = room.state["engine"]["prefix_cache"]
    assert status["on"] is False and word in status["why"]
    for _ in range(2):
        room.submit([*SYSTEM], 4)
        room.run()
    assert room.counters["prefix_hit_tokens"] == 0 and not room.state["hashes"]


def test_switching_sharing_off_says_so_and_forgets_in_every_tier():
    room = Watched(num_blocks=12, max_requests_per_batch=6, max_batch_tokens=24, cpu_offload_space=0.01)
    names = [room.submit([*SYSTEM[:6], index], 24)[0] for index in range(6)]
    while not room.counters["offloads"]:
        room.step()
    room.configure(allow_block_sharing=False)
    assert not room.state["hashes"] and "allow_block_sharing" in room.state["engine"]["prefix_cache"]["why"]
    assert block_counts(room.state)["cached"] == 0
    hits = room.counters["prefix_hit_tokens"]
    room.run()
    room.check_everyone_ended_well()
    assert room.counters["prefix_hit_tokens"] == hits and len(room.outputs(names[0])) == 24


def test_a_reset_forgets_every_prefix():
    room = Watched()
    room.submit([*SYSTEM], 2)
    room.run()
    assert room.state["hashes"]
    room.reset()
    assert not room.state["hashes"] and block_counts(room.state)["free"] == 16
    name, = room.submit([*SYSTEM], 2)
    room.run()
    assert room.request(name).prefix_hit_tokens == 0


def test_uninitialized_blocks_are_used_before_known_content_is_given_up():
    room = Watched(num_blocks=16)
    room.submit([*SYSTEM[:16]], 1)
    room.run()
    known = set(room.state["hashes"])
    room.submit(30, 2)                       # 8 blocks, 12 are uninitialized
    room.run()
    assert known <= set(room.state["hashes"])
    room.submit(60, 2)                       # 16 blocks: everything must go
    room.run()
    assert not known & set(room.state["hashes"]) or room.counters["prefix_hit_tokens"] == 0


@pytest.mark.parametrize("policy", ["most_recent", "lru"])
def test_the_tail_of_a_chain_is_demoted_before_its_head(policy):
    room = Watched(num_blocks=16, demotion_policy=policy)
    room.submit([*SYSTEM[:20]], 1)           # 5 blocks
    room.run()
    room.submit(44 + 4, 1)                   # 12 blocks: one known block must go
    room.run()
    name, = room.submit([*SYSTEM[:20], 5], 1)
    room.step()
    assert room.request(name).prefix_hit_tokens == 16


@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("length", [1, 4, 7, 8])
def test_samples_of_one_prompt_share_its_blocks_and_copy_only_the_last(samples, length):
    room = Watched(num_blocks=40, max_requests_per_batch=8, allow_block_sharing=False)
    names = room.submit(length, 6, n=samples)
    room.run()
    room.check_everyone_ended_well()
    assert len(names) == samples and len({tuple(room.outputs(name)) for name in names}) == samples
    shared = [one for event in room.events for one in event.get("blocks", ()) if one[0] == "share" and one[4] == "fork"]
    assert len(shared) == samples - 1
    assert room.counters["copies"] <= samples - 1 + (length % 4 != 0)
    assert room.counters["prompt_tokens"] == length + samples - 1


@pytest.mark.parametrize("kind", [{"window": 8}, {"layers": 6, "window": 8, "full_every": 3}])
def test_samples_on_sliding_models_never_read_an_overwritten_ring(kind):
    room = Watched(tiny_spec(**kind), num_blocks=60, max_requests_per_batch=8)
    room.submit(13, 20, n=4)
    room.submit(3, 20, n=3)
    room.run()
    room.check_everyone_ended_well()


def test_random_prefixes_in_a_tiny_cache_never_change_a_token():
    choose = random.Random(7)
    room = Watched(num_blocks=18, max_requests_per_batch=5)
    for _ in range(60):
        room.submit(SYSTEM[:choose.randint(1, 24)] + [choose.randint(10, 40)] * choose.randint(0, 3), choose.randint(1, 12))
        room.step(choose.randint(0, 6))
    room.run()
    room.check_everyone_ended_well()
    assert room.counters["prefix_hit_tokens"] > 100
