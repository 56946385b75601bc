"""What is left to spend in one step."""

from __future__ import annotations

from engine.cache.layer_groups import CacheLayout
from engine.config import EngineConfig


class Budget:
    """Query tokens and KV reads of one step. Invariant: neither ever exceeds its maximum."""

    __slots__ = ("_window", "kv", "max_kv", "max_tokens", "tokens")

    def __init__(self, config: EngineConfig, layout: CacheLayout) -> None:
        self.max_tokens = config.max_batch_tokens
        self.max_kv = kv_read_limit(config, layout)
        self.tokens = self.max_tokens
        self.kv = self.max_kv
        self._window = read_window(layout)

    def kv_reads(self, start: int, count: int) -> int:
        """Cached tokens a slice reads, its own included: its whole context, or what its window still sees."""
        return (start if self._window is None else min(start, self._window - 1)) + count

    def spend_on_decode(self, start: int) -> bool:
        """Spend one query token at position ``start`` if both budgets have room for it."""
        reads = (start if self._window is None else min(start, self._window - 1)) + 1
        if self.tokens <= 0 or reads > self.kv:
            return False
        self.tokens -= 1
        self.kv -= reads
        return True

    def spend(self, start: int, count: int) -> None:
        self.tokens -= count
        self.kv -= self.kv_reads(start, count)


def read_window(layout: CacheLayout) -> int | None:
    """The longest context a layer reads: ``None`` where any layer sees everything."""
    windows = [group.window for group in layout.groups]
    return None if None in windows else max(windows)


def kv_read_limit(config: EngineConfig, layout: CacheLayout) -> int:
    """``max_kv_read_tokens``, or the whole cache."""
    if config.max_kv_read_tokens is not None:
        return config.max_kv_read_tokens
    return layout.num_blocks * layout.block_size
