"""Block tables of all requests over the one pool: extend, share, fork, swap, release. Numbers only.

The copies that must happen before the next forward pass (copy on write, swaps) are appended to the step's plan.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.cache.block_pool import BlockPool
from engine.cache.layer_groups import CacheLayout
from engine.cache.prefix_cache import PrefixCache
from engine.cache.swap_pool import SwapPool
from engine.config import EngineConfig
from engine.errors import IntegrityError
from engine.plan import StepPlan
from engine.recorder import Recorder
from engine.request import Request

UNBOUNDED = 2**62       # a sliding table that has wrapped around holds any position

WHY_SLIDING = "Prefix cache off: this model has sliding-window layers, whose blocks are overwritten as they wrap around."
WHY_KNOB = "Prefix cache off: allow_block_sharing is off."


class PagedCache:
    """Owns the pool, the prefix cache and the swap pool of one room."""

    def __init__(self, layout: CacheLayout, config: EngineConfig, recorder: Recorder) -> None:
        self.layout = layout
        self.recorder = recorder
        self.pool = BlockPool(layout.num_blocks, self._demoted, config.demotion_policy)
        self.prefix = PrefixCache(layout.block_size)
        self.swap = SwapPool(layout.num_swap_slots)
        self.sharing = False
        self.configure(config)

    def configure(self, config: EngineConfig) -> None:
        """Live knobs. Switching block sharing off forgets everything known, in every tier."""
        self.pool.demotion_policy = config.demotion_policy
        self.sharing = config.allow_block_sharing and self.layout.all_full_attention
        if not self.sharing:
            self.forget_prefixes()

    def prefix_cache_status(self, config: EngineConfig) -> dict[str, object]:
        """Whether prefixes are shared, and if not, why, for the screen."""
        why = "" if self.sharing else (WHY_KNOB if self.layout.all_full_attention else WHY_SLIDING)
        return {"on": self.sharing, "why": why}

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    # -- allocation -------------------------------------------------------------------------------------------------

    def blocks_to_extend(self, request: Request, end: int) -> int:
        """New blocks that ``request`` needs, over all groups, to write positions ``num_computed`` … ``end - 1``."""
        needed = self.layout.blocks_needed(end) - sum(map(len, request.tables))
        return needed + len(self._blocks_to_copy(request, end)) if request.shares_tail else needed

    def extend(self, request: Request, end: int, plan: StepPlan) -> bool:
        """Make room for positions up to ``end``: all groups get their blocks, or none does. False when the pool is short."""
        if end <= request.covered and not request.shares_tail:
            return True
        if self.blocks_to_extend(request, end) > self.pool.num_free:
            return False
        if request.shares_tail:
            self._copy_on_write(request, end, plan)
        if not request.tables:
            request.tables = [[] for _ in self.layout.groups]
        for group, table in zip(self.layout.groups, request.tables):
            missing = group.blocks_needed(end, self.layout.block_size) - len(table)
            if missing > 0:
                blocks = self.pool.allocate(missing)
                table.extend(blocks)
                self.recorder.block_operation(["alloc", request.id, group.index, blocks])
        request.covered = self._covered(request)
        return True

    def _covered(self, request: Request) -> int:
        size = self.layout.block_size
        covered = UNBOUNDED
        for group, table in zip(self.layout.groups, request.tables):
            slots = len(table) * size
            if group.window is None or slots < group.window:
                covered = min(covered, slots)
        return covered

    # -- copy on write ----------------------------------------------------------------------------------------------

    def _blocks_to_copy(self, request: Request, end: int) -> list[tuple[int, int]]:
        """(group, table index) of blocks that writing ``num_computed`` … ``end - 1`` would change under another owner."""
        size = self.layout.block_size
        found = []
        for group, table in zip(self.layout.groups, request.tables):
            positions = range(request.num_computed, end)
            if group.window is None:
                touched: Iterable[int] = range(request.num_computed // size, min(len(table), -(-end // size)))
            else:
                touched = sorted({position % group.window // size for position in positions[-group.window:]})
            for index in touched:
                if index < len(table) and (self.pool.owners[table[index]] > 1 or self.prefix.is_known(table[index])):
                    found.append((group.index, index))
        return found

    def _copy_on_write(self, request: Request, end: int, plan: StepPlan) -> None:
        for group, index in self._blocks_to_copy(request, end):
            table = request.tables[group]
            source, target = table[index], self.pool.allocate(1)[0]
            plan.copies.append((source, target))
            table[index] = target
            self.pool.release([source], self.prefix.is_known)
            self.recorder.block_operation(["copy", request.id, group, index, source, target])
            self.recorder.count("copies")
        # Full groups only grow past their tail, which is now private; a ring may still wrap onto a shared block.
        request.shares_tail = any(
            self.pool.owners[block] > 1
            for group, table in zip(self.layout.groups, request.tables) if group.window is not None for block in table)

    def fork(self, parent: Request, child: Request) -> None:
        """``child`` gets the parent's blocks for its whole prompt, shared, and recomputes only the prompt's last token."""
        size = self.layout.block_size
        prompt = child.num_prompt_tokens
        child.tables = []
        for group, table in zip(self.layout.groups, parent.tables):
            blocks = table[:group.blocks_needed(prompt, size)]
            for block in blocks:
                self.pool.add_owner(block)
            child.tables.append(blocks)
            self.recorder.block_operation(["share", child.id, group.index, list(blocks), "fork"])
        child.num_computed = prompt - 1
        child.num_registered_blocks = (prompt - 1) // size
        child.covered = self._covered(child)
        child.shares_tail = parent.shares_tail = True

    def can_fork(self, parent: Request, prompt_length: int) -> bool:
        """Whether the parent's cache still holds the prompt as it was: a ring overwrites it as soon as it goes on."""
        if not parent.tables or parent.num_computed < prompt_length:
            return False
        return self.layout.all_full_attention or parent.num_computed == prompt_length

    # -- prefix sharing ---------------------------------------------------------------------------------------------

    def match_prefix(self, request: Request) -> list[int]:
        """Blocks that already hold the start of ``request``; at least one of its tokens is always left to compute."""
        if not self.sharing:
            return []
        complete = (len(request.tokens) - 1) // self.layout.block_size
        return self.prefix.match(request.block_hashes, request.tokens, complete)

    def owned_among(self, blocks: list[int]) -> int:
        """How many of ``blocks`` have an owner, so that sharing them takes nothing from the free ones."""
        return sum(1 for block in blocks if self.pool.owners[block] > 0)

    def share_prefix(self, request: Request, blocks: list[int]) -> None:
        """Start the (empty) table of ``request`` with ``blocks`` found by :meth:`match_prefix`."""
        tokens = len(blocks) * self.layout.block_size
        for block in blocks:
            self.pool.add_owner(block)
        # A model whose every layer has full attention makes exactly one group, and only such models share prefixes.
        request.tables = [list(blocks)]
        request.num_computed = tokens
        request.num_registered_blocks = len(blocks)
        request.covered = self._covered(request)
        request.prefix_hit_tokens += tokens
        self.recorder.block_operation(["share", request.id, 0, list(blocks), "prefix"])
        self.recorder.prefix_hit(request.id, tokens, len(blocks))

    def register_complete_blocks(self, request: Request) -> None:
        """Tell the prefix cache of blocks whose every token is known and written (or being written by a launched step)."""
        if not self.sharing or not request.tables:
            return
        complete = min(request.num_computed, len(request.tokens)) // self.layout.block_size
        if complete <= request.num_registered_blocks:
            return
        self.prefix.extend_digests(request.block_hashes, request.tokens, complete)
        for index in range(request.num_registered_blocks, complete):
            block = request.tables[0][index]
            keys = self.prefix.register(block, index, request.block_hashes, request.tokens)
            if keys is not None:
                self.recorder.block_operation(["hash", block, *keys])
        request.num_registered_blocks = complete

    def forget_prefixes(self) -> None:
        """Empty the prefix cache; blocks in use stay with their owners."""
        if self.prefix.known:
            self.pool.forget(list(self.prefix.known))
            self.prefix.clear()
            self.recorder.block_operation(["forget"])

    def _demoted(self, blocks: list[int]) -> None:
        self.prefix.forget(blocks)
        self.recorder.block_operation(["demote", blocks])

    # -- giving back ------------------------------------------------------------------------------------------------

    def freed_by(self, request: Request) -> int:
        """Blocks that become free when ``request`` lets go: those nobody else owns."""
        return sum(1 for table in request.tables for block in table if self.pool.owners[block] == 1)

    def release(self, request: Request) -> None:
        """Give back everything ``request`` holds, on the device and in host memory. Harmless when it holds nothing."""
        if not request.tables and not request.swap_slots:
            return
        for table in request.tables:
            self.pool.release(table, self.prefix.is_known)
        for slots in request.swap_slots:
            self.swap.release_after_step(slots)
        self._clear(request)
        self.recorder.block_operation(["free", request.id])

    def swap_out(self, request: Request, plan: StepPlan) -> int:
        """Move all blocks of ``request`` to host slots; the caller has checked that they fit. Returns their number."""
        tables = request.tables
        slots = [self.swap.allocate(len(table)) for table in tables]
        for table, group_slots in zip(tables, slots):
            plan.swap_out.extend(zip(table, group_slots))
            self.pool.release(table, self.prefix.is_known)
        self._clear(request)
        request.swap_slots = slots
        self.recorder.block_operation(["swap_out", request.id, tables, slots])
        return sum(map(len, tables))

    def swap_in(self, request: Request, plan: StepPlan) -> int:
        """Bring an offloaded request back into fresh blocks; the caller has checked that they fit. Returns their number."""
        slots = request.swap_slots
        tables = [self.pool.allocate(len(group_slots)) for group_slots in slots]
        for table, group_slots in zip(tables, slots):
            plan.swap_in.extend(zip(group_slots, table))
            self.swap.release_after_step(group_slots)
        self.recorder.block_operation(["swap_in", request.id, slots, [list(table) for table in tables]])
        request.swap_slots = []
        request.tables = tables
        request.covered = self._covered(request)
        return sum(map(len, tables))

    def _clear(self, request: Request) -> None:
        request.tables = []
        request.swap_slots = []
        request.covered = 0
        request.num_registered_blocks = 0
        request.shares_tail = False

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Raises :class:`IntegrityError` when a block, a hash or a swap slot is not exactly where the tables say."""
        requests = list(requests)
        self.pool.check_integrity(table for request in requests for table in request.tables)
        self.prefix.check_integrity()
        self.swap.check_integrity([slot for request in requests for slots in request.swap_slots for slot in slots])
        for block in self.pool.initialized:
            if not self.prefix.is_known(block):
                raise IntegrityError(f"block {block} is listed as initialized, but its content is not known")
        for block in self.pool.uninitialized:
            if self.prefix.is_known(block):
                raise IntegrityError(f"block {block} is listed as uninitialized, but is known to the prefix cache")
