"""Which complete blocks hold which tokens: content hashes chained on the parent, verified on every hit.

    tokens      [ t0 … t15 ][ t16 … t31 ][ t32 … t40 ]        block_size 16
    digest        d0 = H(t0…15)   d1 = H(d0, t16…31)   –      incomplete blocks have none
    index         key(d0) → block 7     key(d1) → block 3

The key is short (8 bytes, shown on screen). A hit is taken only when the block's own tokens and the digest of everything
before it agree, so two contents with one key are a miss, not a wrong answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from engine.errors import IntegrityError


class KnownBlock(NamedTuple):
    """Content of a hashed block: its short key, the digest of all tokens before it, and its own tokens."""

    key: bytes
    parent: bytes
    tokens: tuple[int, ...]


def chain_digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """SHA-256 over the parent's digest (empty for the first block) and the token ids."""
    return sha256(parent + array("q", tokens).tobytes()).digest()


class PrefixCache:
    """Index from content to block number. ``shorten`` maps a digest to its key (replaceable, to test collisions)."""

    def __init__(self, block_size: int, shorten: Callable[[bytes], bytes] = lambda digest: digest[:8]) -> None:
        self.block_size = block_size
        self.shorten = shorten
        self.by_key: dict[bytes, int] = {}
        self.known: dict[int, KnownBlock] = {}

    def extend_digests(self, digests: list[bytes], tokens: list[int], num_blocks: int) -> None:
        """Append to ``digests`` until it covers the first ``num_blocks`` complete blocks of ``tokens``."""
        size = self.block_size
        for index in range(len(digests), num_blocks):
            parent = digests[index - 1] if index else b""
            digests.append(chain_digest(parent, tokens[index * size:(index + 1) * size]))

    def match(self, digests: list[bytes], tokens: list[int], num_blocks: int) -> list[int]:
        """The longest run of blocks, from the start, that hold the first ``num_blocks`` blocks of ``tokens``."""
        size = self.block_size
        self.extend_digests(digests, tokens, num_blocks)
        blocks: list[int] = []
        parent = b""
        for index in range(num_blocks):
            block = self.by_key.get(self.shorten(digests[index]))
            if block is None:
                break
            known = self.known[block]
            if known.parent != parent or known.tokens != tuple(tokens[index * size:(index + 1) * size]):
                break
            blocks.append(block)
            parent = digests[index]
        return blocks

    def register(self, block: int, index: int, digests: list[bytes], tokens: list[int]) -> tuple[str, str | None] | None:
        """Remember that ``block`` holds the complete block ``index`` of ``tokens``.

        Returns ``(key, parent key)`` in hex, or ``None`` when another block already holds this content (or this key): the
        first stays, so a block table is never changed behind a running request.
        """
        key = self.shorten(digests[index])
        if key in self.by_key or block in self.known:
            return None
        parent = digests[index - 1] if index else b""
        size = self.block_size
        self.by_key[key] = block
        self.known[block] = KnownBlock(key, parent, tuple(tokens[index * size:(index + 1) * size]))
        return key.hex(), self.shorten(parent).hex() if index else None

    def is_known(self, block: int) -> bool:
        return block in self.known

    def forget(self, blocks: list[int]) -> None:
        """The content of ``blocks`` is gone."""
        for block in blocks:
            del self.by_key[self.known.pop(block).key]

    def clear(self) -> None:
        self.by_key.clear()
        self.known.clear()

    def check_integrity(self) -> None:
        """Raises :class:`IntegrityError` unless keys and blocks are paired one to one."""
        if len(self.by_key) != len(self.known) or any(self.by_key.get(known.key) != block for block, known in self.known.items()):
            raise IntegrityError("the prefix index and the known blocks disagree")
