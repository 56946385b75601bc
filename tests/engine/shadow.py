"""A simulated device that remembers what every cache slot holds, and fails when a step would read anything else.

The K and V of a position depend on every token up to it, so one number stands for them: a running hash of the tokens. Each
step is carried out on these numbers exactly as the plan says (copies out, copies in, block copies, then writes and reads),
so a freed page that is read, a stale prefix, a lost copy or a wrong restore shows up in the step in which it happens.
"""

from __future__ import annotations

from engine.cache.layer_groups import CacheLayout
from engine.config import EngineConfig
from engine.executor.catalog import Hardware, decoder
from engine.executor.simulated import SimulatedExecutor, scramble
from engine.plan import PADDING, StepPlan
from engine.request import Request

#: A small machine whose every number is round.
TEST_HARDWARE = Hardware("test", "Test", 1e9, 1e9, 1e12, 1e9, 1e9, reserved_bytes=0, kernel_launch=1e-6, host_step=1e-4, host_row=1e-6)


def tiny_spec(**options):
    """Two full layers, or with ``window`` and ``full_every`` a sliding or hybrid model; 1,000 tokens, 3 ends a text.

    A token takes 16 KiB a layer, so that 0.01 GiB of host memory is a few dozen slots.
    """
    shape = {"layers": 2, "hidden": 16, "intermediate": 32, "heads": 2, "kv_heads": 1, "head_dim": 4096, "vocab": 1000, "eos": (3,), **options}
    layers, hidden, intermediate, heads, kv_heads, vocab = (
        shape.pop(name) for name in ("layers", "hidden", "intermediate", "heads", "kv_heads", "vocab"))
    return decoder("tiny", layers, hidden, intermediate, heads, kv_heads, vocab, **shape)


class WrongContent(AssertionError):
    """A step would have read a slot that does not hold what it should."""


class ShadowExecutor(SimulatedExecutor):
    """A :class:`SimulatedExecutor` that checks the content of every slot it reads."""

    def __init__(self, spec=None, **options) -> None:
        super().__init__(TEST_HARDWARE, spec or tiny_spec(), **options)
        self.memory: list[list[int]] = []
        self.host: list[list[int] | None] = []
        self.chains: dict[tuple[str, int], list[int]] = {}
        self.checked_positions = 0

    def allocate(self, layout: CacheLayout, config: EngineConfig) -> None:
        super().allocate(layout, config)
        self.memory = [[0] * layout.block_size for _ in range(layout.num_blocks)]
        self.host = [None] * layout.num_swap_slots

    def launch(self, plan: StepPlan):
        self._copy(plan)
        self._check_sliding(plan)
        self._write(plan)
        self._check_full(plan)
        return super().launch(plan)

    def _copy(self, plan: StepPlan) -> None:
        memory, host = self.memory, self.host
        written = {slot for _, slot in plan.swap_out}
        if len(written) != len(plan.swap_out):
            raise WrongContent("one host slot is written twice in a step")
        if written & {slot for slot, _ in plan.swap_in}:
            raise WrongContent("a host slot is written and read in one step")
        for block, slot in plan.swap_out:
            host[slot] = list(memory[block])
        targets = [block for _, block in plan.swap_in]
        if len(set(targets)) != len(targets):
            raise WrongContent("one block is filled from two host slots in a step")
        for slot, block in plan.swap_in:
            if host[slot] is None:
                raise WrongContent(f"host slot {slot} is read but was never written")
            memory[block] = list(host[slot])
        sources = [list(memory[source]) for source, _ in plan.copies]      # a batched copy reads everything first
        for (_, target), content in zip(plan.copies, sources):
            memory[target] = content

    def _chain(self, request: Request, end: int) -> list[int]:
        """Running hashes of the first ``end`` tokens; one that is still being computed comes from the step before."""
        chain = self.chains.setdefault((request.id, request.ordinal), [])
        for position in range(len(chain), end):
            token = request.tokens[position] if position < len(request.tokens) else self.token_at(request, position)
            chain.append(scramble(chain[-1] if chain else 1, token) or 1)
        return chain

    def _groups(self, request: Request):
        if len(request.tables) != len(self._layout.groups):
            raise WrongContent(f"{request.id} is computed without a table for each layer group")
        return zip(self._layout.groups, request.tables)

    def _check_sliding(self, plan: StepPlan) -> None:
        """Before anything is written: what the window still sees lies at ``position % window``."""
        size = self._layout.block_size
        for request, start, count, kind, _ in plan.slices:
            if kind != PADDING and count < 1:
                raise WrongContent("an empty slice was scheduled")
            for group, table in self._groups(request):
                if group.window is None:
                    continue
                chain = self._chain(request, start + count)
                for position in range(max(0, start - group.window + 1), start):
                    slot = position % group.window
                    self._expect(request, group, table[slot // size], slot % size, position, chain)

    def _write(self, plan: StepPlan) -> None:
        size = self._layout.block_size
        owner: dict[tuple[int, int], str] = {}
        for request, start, count, kind, _ in plan.slices:
            if kind == PADDING:
                continue
            chain = self._chain(request, start + count)
            for group, table in self._groups(request):
                first = start if group.window is None else max(start, start + count - group.window)
                for position in range(first, start + count):
                    slot = position if group.window is None else position % group.window
                    block, offset = table[slot // size], slot % size
                    if owner.setdefault((block, offset), request.id) != request.id:
                        raise WrongContent(f"{request.id} and {owner[block, offset]} both write slot {offset} of block {block}")
                    self.memory[block][offset] = chain[position]

    def _check_full(self, plan: StepPlan) -> None:
        """After the writes: every position up to the end of each slice is where its table says."""
        size = self._layout.block_size
        for request, start, count, kind, _ in plan.slices:
            end = start if kind == PADDING else start + count
            chain = self._chain(request, end)
            for group, table in self._groups(request):
                if group.window is not None:
                    continue
                self.checked_positions += end
                for index in range(-(-end // size)):
                    stop = min(size, end - index * size)
                    if self.memory[table[index]][:stop] != chain[index * size:index * size + stop]:
                        for offset in range(stop):
                            self._expect(request, group, table[index], offset, index * size + offset, chain)

    def _expect(self, request: Request, group, block: int, offset: int, position: int, chain: list[int]) -> None:
        self.checked_positions += 1
        if self.memory[block][offset] != chain[position]:
            raise WrongContent(f"{request.id} reads position {position} from slot {offset} of block {block} (group {group.index}), "
                               "which does not hold it")
