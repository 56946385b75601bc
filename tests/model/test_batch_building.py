"""Index building, checked against the plain meaning of block tables, rings and padding, without any model."""

from __future__ import annotations

import random

import pytest
import torch

from engine.cache.layer_groups import SENTINEL, CacheLayout, LayerGroup
from engine.executor.batch_buffers import BatchBuffers
from engine.executor.batch_builder import BatchBuilder, BuiltBatch, Intervals
from engine.executor.block_tables import BlockTables
from engine.plan import DECODE, PADDING, PREFILL, Slice, StepPlan
from engine.request import Request
from engine.sampling_params import SamplingParams

CPU = torch.device("cpu")
BLOCK = 4


def make_layout(*windows: int | None, num_blocks: int = 4000) -> CacheLayout:
    groups = tuple(
        LayerGroup(i, "sliding_attention" if window else "full_attention", (i,), window) for i, window in enumerate(windows)
    )
    return CacheLayout(groups, num_blocks, BLOCK, 0)


def make_request(name: str, tokens: int, layout: CacheLayout, generator: random.Random, taken: set[int]) -> Request:
    request = Request(name, 0, [generator.randrange(3, 99) for _ in range(tokens)], tokens, SamplingParams())
    for group in layout.groups:
        blocks = []
        while len(blocks) < group.blocks_needed(tokens, BLOCK):
            block = generator.randrange(layout.num_blocks)
            if block not in taken:
                taken.add(block)
                blocks.append(block)
        request.tables.append(blocks)
    return request


def build(
    layout: CacheLayout, slices: list[Slice], intervals: Intervals = Intervals(), builder=None, in_flight=None
) -> BuiltBatch:
    builder = builder or BatchBuilder(layout)
    built = builder.build(
        StepPlan(1, slices), intervals, lambda shape: BatchBuffers(shape, builder.windows, CPU), in_flight or {}
    )
    built.buffers.upload()
    return built


def random_slices(layout: CacheLayout, seed: int) -> list[Slice]:
    generator, taken, slices = random.Random(seed), set(), []
    for i in range(generator.randint(1, 9)):
        length = generator.randint(1, 40)
        request = make_request(str(i), length, layout, generator, taken)
        count = 1 if generator.random() < 0.5 else generator.randint(1, length)
        start = generator.randint(0, length - count)
        kind = PADDING if count == 1 and start and generator.random() < 0.2 else DECODE if count == 1 else PREFILL
        slices.append(Slice(request, start, count, kind, kind != PADDING and generator.random() < 0.7))
    return slices


def slot_of(layout: CacheLayout, group: int, request: Request, position: int) -> int:
    window = layout.groups[group].window
    ring = position if window is None else position % window
    return request.tables[group][ring // BLOCK] * BLOCK + ring % BLOCK


@pytest.mark.parametrize("intervals", [Intervals(), Intervals(8, 16)], ids=["exact", "padded"])
@pytest.mark.parametrize("seed", range(25))
def test_every_token_is_read_and_written_where_its_tables_say(seed, intervals):
    layout = make_layout(None, 6, 11)
    slices = random_slices(layout, seed)
    built = build(layout, slices, intervals)
    batch, ordered = built.buffers.batch, sorted(slices, key=lambda piece: piece.count > 1)
    singles = sum(piece.count == 1 for piece in slices)
    rows = [*range(singles), *range(batch.num_decode, batch.num_rows)]
    assert batch.num_rows == len(slices) + built.query_padding
    for row, piece in zip(rows, ordered, strict=True):
        first, last = batch.query_starts[row:row + 2].tolist()
        positions = list(range(piece.start, piece.start + piece.count))
        assert last - first == piece.count
        assert batch.position_ids[first:last].tolist() == positions
        if piece.kind == PADDING:
            assert batch.input_ids[first] == piece.request.tokens[-1]
            continue
        assert batch.input_ids[first:last].tolist() == [piece.request.tokens[position] for position in positions]
        for index, group in enumerate(batch.groups):
            window = layout.groups[index].window
            kept = positions if window is None else positions[-window:]
            wanted = [slot_of(layout, index, piece.request, position) for position in kept]
            assert group.slot_mapping[last - len(kept):last].tolist() == wanted
            end = piece.start + piece.count
            assert group.kv_lengths[row] == (end if window is None else min(end, window))
            table = piece.request.tables[index][:group.block_table.shape[1]]
            assert group.block_table[row, :len(table)].tolist() == table
            if row >= batch.num_decode and window is not None:
                prefill_row = row - batch.num_decode
                begin, stop = group.gather.starts[prefill_row:prefill_row + 2].tolist()
                old = [
                    slot_of(layout, index, piece.request, position)
                    for position in range(max(0, piece.start - window + 1), piece.start)
                ]
                assert group.gather.slots[begin:stop].tolist() == old + [SENTINEL] * piece.count
    sampled = [(row, piece) for row, piece in zip(rows, ordered, strict=True) if piece.samples]
    order = {id(piece): row for row, piece in sampled}
    wanted = [int(batch.query_starts[order[id(piece)] + 1]) - 1 for piece in slices if piece.samples]
    assert batch.sample_rows[:built.num_samples].tolist() == wanted


@pytest.mark.parametrize("seed", range(25))
def test_nothing_but_a_real_token_is_written_to_a_real_slot_and_none_twice(seed):
    layout = make_layout(None, 6)
    slices = random_slices(layout, seed)
    batch = build(layout, slices, Intervals(16, 32)).buffers.batch
    for index, group in enumerate(batch.groups):
        window = layout.groups[index].window
        real = [slot for slot in group.slot_mapping.tolist() if slot < layout.num_blocks * BLOCK]
        elsewhere = [slot for slot in group.slot_mapping.tolist() if slot >= layout.num_blocks * BLOCK]
        assert (
            len(real)
            == len(set(real))
            == sum(min(piece.count, window or piece.count) for piece in slices if piece.kind != PADDING)
        )
        assert all(slot // BLOCK == layout.padding_write for slot in elsewhere)


def test_64_rows_padded_to_128_read_and_write_only_the_padding_blocks():
    layout, generator = make_layout(None), random.Random(0)
    taken: set[int] = set()
    slices = [Slice(make_request(str(i), 9, layout, generator, taken), 8, 1, DECODE, True) for i in range(64)]
    built = build(layout, slices, Intervals(128, 16))
    batch, group = built.buffers.batch, built.buffers.batch.groups[0]
    assert (batch.num_tokens, built.query_padding, batch.num_padding) == (128, 64, 64)
    assert set(group.block_table[64:].flatten().tolist()) == {layout.padding_read}
    assert set((group.slot_mapping[64:] // BLOCK).tolist()) == {layout.padding_write}
    assert group.kv_lengths[64:].tolist() == [1] * 64


def test_a_static_slots_padding_reads_its_own_cache_and_writes_nowhere():
    layout, generator = make_layout(None, 6), random.Random(0)
    done = make_request("done", 11, layout, generator, set())
    gone = Request("gone", 1, [5, 6, 7], 2, SamplingParams())
    batch = build(layout, [Slice(done, 10, 1, PADDING, False), Slice(gone, 2, 1, PADDING, False)]).buffers.batch
    assert batch.groups[0].kv_lengths.tolist() == [10, 1]
    assert batch.groups[1].kv_lengths.tolist() == [6, 1]
    assert batch.groups[0].block_table[1].tolist() == [layout.padding_read] * 3
    for group in batch.groups:
        assert set((group.slot_mapping // BLOCK).tolist()) == {layout.padding_write}


def test_a_token_still_in_flight_is_taken_from_the_step_before():
    layout, generator = make_layout(None), random.Random(0)
    taken: set[int] = set()
    known, waiting = (make_request(name, 6, layout, generator, taken) for name in "ab")
    waiting.tokens.pop()
    built = build(
        layout, [Slice(known, 5, 1, DECODE, True), Slice(waiting, 5, 1, DECODE, True)], in_flight={known: 0, waiting: 1}
    )
    assert built.has_carry
    assert built.buffers.carry.tolist() == [-1, 1]
    built.buffers.take_carried(torch.tensor([70, 71]))
    assert built.buffers.batch.input_ids.tolist() == [known.tokens[5], 71]


def test_same_padded_sizes_but_another_longest_context_is_another_shape():
    layout, generator = make_layout(None), random.Random(0)
    taken: set[int] = set()
    requests = [make_request(str(i), length, layout, generator, taken) for i, length in enumerate((5, 40, 18))]
    shapes = [
        build(layout, [Slice(request, len(request.tokens) - 1, 1, DECODE, True)], Intervals(4, 16)).buffers.shape
        for request in requests
    ]
    assert len(set(shapes)) == 3
    assert [shape.num_tokens for shape in shapes] == [4, 4, 4]


def test_tables_follow_growth_copies_shrinking_and_return():
    """The kept array must show each table as it is now: extended, an entry replaced by copy-on-write, or quite another one
    after a preemption, also one of equal length in the very next step."""
    layout, generator = make_layout(None), random.Random(1)
    tables, request = BlockTables(layout), make_request("a", 20, layout, random.Random(2), set())
    other = make_request("b", 9, layout, generator, set())

    def shown(subject: Request, recheck: bool = False) -> list[int]:
        rows = tables.rows_of([subject], recheck)
        return [block for block in tables.array(0, 16)[rows[0]].tolist() if block != layout.padding_read]

    assert shown(request) == request.tables[0]
    request.tables[0].append(77)
    assert shown(request) == request.tables[0]
    request.tables[0][1] = 78
    assert shown(request, recheck=True) == request.tables[0]
    request.tables[0] = [9, 8, 7, 6, 5, 4]
    request.num_soft_resets += 1
    assert shown(request) == request.tables[0]
    request.tables[0] = [3]
    assert shown(request) == [3]
    assert shown(other) == other.tables[0]
    request.tables[0] = [2]
    assert shown(request) == [2], "it was away for a step, so it is not trusted"


def test_rows_of_ended_requests_are_used_again():
    layout, generator = make_layout(None), random.Random(1)
    tables, taken = BlockTables(layout), set()
    for round in range(60):
        requests = [make_request(f"{round}.{i}", 5, layout, generator, taken) for i in range(10)]
        taken.clear()
        rows = tables.rows_of(requests, False)
        assert len(set(rows.tolist())) == 10 and 0 not in rows
        for row, request in zip(rows, requests, strict=True):
            assert tables.array(0, 2)[row, :2].tolist() == request.tables[0]
    assert tables.array(0, 1).shape[0] <= 64
