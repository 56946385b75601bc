"""The prefix cache: a hit is the same content from the first token on, or it is a miss."""

from __future__ import annotations

from engine.cache.prefix_cache import PrefixCache


def remembered(cache: PrefixCache, tokens: list[int], first_block: int = 0) -> list[bytes]:
    digests: list[bytes] = []
    count = len(tokens) // cache.block_size
    cache.extend_digests(digests, tokens, count)
    for index in range(count):
        cache.register(first_block + index, index, digests, tokens)
    return digests


def test_only_the_longest_common_run_of_blocks_is_hit():
    cache = PrefixCache(4)
    remembered(cache, list(range(12)))
    other = [*list(range(8)), 99, 98, 97, 96]
    assert cache.match([], other, 3) == [0, 1]
    assert cache.match([], [5, *list(range(1, 12))], 3) == []


def test_the_same_block_after_another_parent_is_a_miss():
    cache = PrefixCache(2)
    remembered(cache, [1, 2, 7, 7])
    assert cache.match([], [3, 4, 7, 7], 2) == []


def test_two_contents_with_one_key_are_a_miss_not_a_wrong_answer():
    cache = PrefixCache(2, shorten=lambda digest: b"same")
    remembered(cache, [1, 2])
    assert cache.match([], [3, 4], 1) == []
    assert cache.match([], [1, 2], 1) == [0]


def test_a_colliding_parent_does_not_vouch_for_its_child():
    """The child's own tokens agree and its key is found, but everything before it differs."""
    keys = {}

    def shorten(digest: bytes) -> bytes:
        return keys.setdefault(digest, bytes([len(keys) % 2]))      # first and third digest collide, so do second and fourth

    cache = PrefixCache(2, shorten=shorten)
    remembered(cache, [1, 2, 7, 7])
    cache.forget([0])
    remembered(cache, [3, 4], first_block=5)
    assert cache.match([], [3, 4, 7, 7], 2) == [5]


def test_the_first_block_with_a_content_stays_the_known_one():
    cache = PrefixCache(2)
    digests = remembered(cache, [1, 2])
    assert cache.register(9, 0, digests, [1, 2]) is None
    assert cache.match([], [1, 2], 1) == [0]
    cache.check_integrity()


def test_forgetting_a_block_leaves_its_descendants_unreachable():
    cache = PrefixCache(2)
    remembered(cache, [1, 2, 3, 4])
    cache.forget([0])
    assert cache.match([], [1, 2, 3, 4], 2) == []
    cache.check_integrity()
