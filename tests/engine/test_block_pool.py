"""The block pool: a block is free, initialized or owned, exactly one of them, and given up in the stated order."""

from __future__ import annotations

import pytest

from engine.cache.block_pool import BlockPool
from engine.errors import IntegrityError


def pool_with_hashed(policy: str, hashed: set[int], size: int = 4) -> tuple[BlockPool, list[int]]:
    demoted: list[int] = []

    def on_demote(blocks: list[int]) -> None:
        demoted.extend(blocks)
        hashed.difference_update(blocks)

    return BlockPool(size, on_demote, policy), demoted


def test_uninitialized_blocks_are_used_before_anything_is_demoted():
    hashed = {0, 1}
    pool, demoted = pool_with_hashed("most_recent", hashed)
    pool.release(pool.allocate(2), hashed.__contains__)
    assert pool.allocate(2) == [2, 3] and demoted == []
    assert pool.num_free == 2


def test_most_recent_policy_gives_up_the_newest_chain_from_its_tail():
    hashed = {0, 1, 2, 3}
    pool, demoted = pool_with_hashed("most_recent", hashed)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.release(first, hashed.__contains__)
    pool.release(second, hashed.__contains__)
    pool.allocate(3)
    assert demoted == [3, 2, 1], "newest chain first, and in it the tail, so that what is left of a chain can still be hit"


def test_lru_policy_gives_up_the_oldest_chain_from_its_tail():
    hashed = {0, 1, 2, 3}
    pool, demoted = pool_with_hashed("lru", hashed)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.release(first, hashed.__contains__)
    pool.release(second, hashed.__contains__)
    pool.allocate(3)
    assert demoted == [1, 0, 3]


def test_a_shared_block_is_free_only_when_its_last_owner_lets_go():
    pool, _ = pool_with_hashed("lru", set())
    blocks = pool.allocate(1)
    pool.add_owner(blocks[0])
    pool.release(blocks, lambda block: False)
    assert pool.num_free == 3
    pool.release(blocks, lambda block: False)
    assert pool.num_free == 4


def test_a_hit_takes_an_initialized_block_back_without_losing_it():
    hashed = {0}
    pool, demoted = pool_with_hashed("lru", hashed)
    pool.release(pool.allocate(1), hashed.__contains__)
    pool.add_owner(0)
    assert pool.num_free == 3 and pool.owners[0] == 1
    pool.allocate(3)
    assert demoted == []


def test_the_integrity_check_notices_a_lost_and_a_doubly_counted_block():
    pool, _ = pool_with_hashed("lru", set())
    blocks = pool.allocate(2)
    pool.check_integrity([blocks])
    with pytest.raises(IntegrityError):
        pool.check_integrity([blocks[:1]])
    pool.uninitialized.append(3)
    with pytest.raises(IntegrityError):
        pool.check_integrity([blocks])
