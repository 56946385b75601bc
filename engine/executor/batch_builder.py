"""From a step plan to the index arrays of a packed batch, vectorised over requests and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from engine.cache.layer_groups import SENTINEL, CacheLayout
from engine.executor.batch_buffers import BatchBuffers, BatchShape, GroupShape
from engine.executor.block_tables import PADDING_ROW, BlockTables
from engine.plan import PADDING, Slice, StepPlan
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Intervals:
    """Shapes are rounded up to multiples of these, so that they repeat (1: as they are)."""

    query: int = 1
    kv: int = 1


@dataclass(slots=True)
class BuiltBatch:
    """A filled batch, and how to read its results: the first ``num_samples`` rows of logits are the plan's sampling
    slices in order (more rows, if any, are padding)."""

    buffers: BatchBuffers
    num_samples: int
    has_carry: bool          # some input tokens are samples of the step before, see ``BatchBuffers.take_carried``
    query_padding: int
    kv_padding: int


class BatchBuilder:
    """Builds batches for one cache layout. Not thread-safe: one room, one engine thread."""

    def __init__(self, layout: CacheLayout) -> None:
        self._layout = layout
        self._tables = BlockTables(layout)
        self.windows = tuple(group.window for group in layout.groups)

    def build(self, plan: StepPlan, intervals: Intervals, buffers_for: Callable[[BatchShape], BatchBuffers],
              in_flight: Mapping[Request, int]) -> BuiltBatch:
        """Lay the slices out (decode rows, padding rows, prefill rows), choose the padded shape, ask ``buffers_for`` memory
        of that shape and fill it. The caller uploads. ``in_flight``: which sample of the step before is whose."""
        slices = plan.slices
        count = np.array([piece.count for piece in slices], np.int64)
        start = np.array([piece.start for piece in slices], np.int64)
        order = np.argsort(count > 1, kind="stable")
        num_single = int(np.count_nonzero(count == 1))
        tokens = int(count.sum())
        query_padding = -tokens % intervals.query
        num_decode = num_single + query_padding

        # Per row: decode rows, then padding rows, then prefill rows.
        rows = len(slices) + query_padding
        padding = slice(num_single, num_decode)
        place = np.concatenate([np.arange(num_single), np.arange(num_decode, rows)])     # row of the i-th ordered slice
        row_start, row_count = np.zeros(rows, np.int64), np.ones(rows, np.int64)
        row_start[place], row_count[place] = start[order], count[order]
        table_row = np.full(rows, PADDING_ROW, np.intp)
        table_row[place] = self._tables.rows_of([piece.request for piece in slices], plan.has_copies)[order]
        idle = np.zeros(rows, bool)              # rows that write nowhere and whose own new token is not read back
        idle[padding] = True
        idle[place] = np.fromiter((slices[i].kind == PADDING for i in order), bool, len(slices))

        query_starts = np.zeros(rows + 1, np.int64)
        np.cumsum(row_count, out=query_starts[1:])
        max_query = int(row_count[num_decode:].max()) if rows > num_decode else 0
        max_query = _round_up(max_query, intervals.query)
        row_of_slice = np.empty(len(slices), np.int64)
        row_of_slice[order] = place
        sampled = [i for i, piece in enumerate(slices) if piece.samples]
        num_samples = _round_up(len(sampled), intervals.query)

        end = row_start + row_count
        padding_slices = [(int(row_of_slice[i]), piece) for i, piece in enumerate(slices) if piece.kind == PADDING]
        readable = [self._readable(group, end, padding_slices) for group in range(len(self.windows))]
        longest = int(max(lengths.max() for lengths in readable))
        shape = BatchShape(
            num_tokens=tokens + query_padding, num_decode=num_decode, num_prefill=rows - num_decode, max_query=max_query,
            num_samples=num_samples,
            groups=tuple(self._group_shape(group, readable[group], row_start[num_decode:], row_count[num_decode:], intervals)
                         for group in range(len(self.windows))))
        buffers = buffers_for(shape)
        host = buffers.host
        buffers.batch.num_padding = buffers.batch.query_padding = query_padding

        row_of_token = np.repeat(np.arange(rows), row_count)
        position = np.arange(shape.num_tokens) - (query_starts[:-1] - row_start)[row_of_token]
        host["query_starts"][:] = query_starts
        host["position_ids"][:] = position
        host["sample_rows"][:] = 0
        host["sample_rows"][:len(sampled)] = query_starts[1:][row_of_slice[sampled]] - 1
        has_carry = self._fill_tokens(host["input_ids"], host["carry"], slices, query_starts[row_of_slice], padding, in_flight)
        for group in range(len(self.windows)):
            self._fill_group(
                group, host, shape, table_row, row_of_token, position, end, idle, readable[group], row_start, row_count
            )
        return BuiltBatch(buffers, len(sampled), has_carry, query_padding, max(item.max_kv for item in shape.groups) - longest)

    def _readable(self, group: int, end: np.ndarray, padding_slices: list[tuple[int, Slice]]) -> np.ndarray:
        """Cache slots each row may read. A static slot's padding slice reads what its request has cached, but at least one
        slot: a row without any key would divide zero by zero."""
        window = self.windows[group]
        lengths = end.copy() if window is None else np.minimum(end, window)
        for row, piece in padding_slices:
            held = len(piece.request.tables[group]) * self._layout.block_size if piece.request.tables else 0
            lengths[row] = max(1, min(piece.start, held, lengths[row]))
        return lengths

    def _group_shape(
        self, group: int, readable: np.ndarray, start: np.ndarray, count: np.ndarray, intervals: Intervals
    ) -> GroupShape:
        window, block_size = self.windows[group], self._layout.block_size
        max_kv = _round_up(int(readable.max()), intervals.kv)
        if window is not None:
            max_kv = min(max_kv, window)
        width = -(-max_kv // block_size)
        if window is None or not len(start):
            return GroupShape(width, max_kv)
        keys = count + np.minimum(start, window - 1)
        return GroupShape(width, max_kv, _round_up(int(keys.sum()), intervals.kv), _round_up(int(keys.max()), intervals.kv))

    @staticmethod
    def _fill_tokens(out: np.ndarray, carry: np.ndarray, slices: list[Slice], first_token: np.ndarray, padding: slice,
                     in_flight: Mapping[Request, int]) -> bool:
        """Token ids of all slices. A token that the step before is still computing is left to the carry; tells whether
        there is one."""
        out[padding] = 0
        carry[:] = -1
        has_carry = False
        for piece, place in zip(slices, first_token.tolist(), strict=True):
            known, start, count = piece.request.tokens, piece.start, piece.count
            if piece.kind == PADDING:
                out[place:place + count] = known[-1]
            elif start + count <= len(known):
                if count == 1:
                    out[place] = known[start]
                else:
                    out[place:place + count] = known[start:start + count]
            else:
                # At most one token of a request is ever in flight, and it is the last of the slice.
                out[place:place + count - 1] = known[start:start + count - 1]
                out[place + count - 1] = 0
                carry[place + count - 1] = in_flight[piece.request]
                has_carry = True
        return has_carry

    def _fill_group(self, group: int, host: dict[str, np.ndarray], shape: BatchShape, table_row: np.ndarray,
                    row_of_token: np.ndarray, position: np.ndarray, end: np.ndarray, idle: np.ndarray,
                    readable: np.ndarray, start: np.ndarray, count: np.ndarray) -> None:
        window, block_size, layout = self.windows[group], self._layout.block_size, self._layout
        width = shape.groups[group].width
        host[f"kv_lengths{group}"][:] = readable
        self._tables.take(group, table_row, host[f"block_table{group}"])
        table = self._tables.array(group, width)

        # Where each new token goes. Nothing but a real token of a real row may reach a real slot.
        ring = position if window is None else position % window
        block = table[table_row[row_of_token], np.minimum(ring // block_size, table.shape[1] - 1)]
        nowhere = idle[row_of_token]
        if window is not None:
            nowhere = nowhere | (position < end[row_of_token] - window)
        slot = block.astype(np.int64) * block_size + ring % block_size
        trash = layout.padding_write * block_size + np.arange(len(position)) % block_size
        host[f"slot_mapping{group}"][:] = np.where(nowhere, trash, slot)

        if not shape.groups[group].num_keys:
            return
        # Sliding prefill rows: cached positions start-window+1 … start-1 out of the ring, then the row's own tokens.
        first_row = shape.num_decode
        begin, size = start[first_row:], count[first_row:]
        cached = np.minimum(begin, window - 1)
        starts = np.zeros(len(begin) + 1, np.int64)
        np.cumsum(cached + size, out=starts[1:])
        total = int(starts[-1])
        row = np.repeat(np.arange(len(begin)), cached + size)
        key_position = np.arange(total) - starts[row] + (begin - cached)[row]
        ring = key_position % window
        block = table[table_row[first_row + row], np.minimum(ring // block_size, table.shape[1] - 1)].astype(np.int64)
        slots = host[f"slots{group}"]
        slots[:total] = np.where(key_position < begin[row], block * block_size + ring % block_size, SENTINEL)
        slots[total:] = layout.padding_read * block_size
        host[f"starts{group}"][:] = starts
        host[f"fresh{group}"][:] = np.flatnonzero(slots == SENTINEL)
        host[f"cached{group}"][:] = np.flatnonzero(slots != SENTINEL)


def _round_up(value: int, interval: int) -> int:
    return -(-value // interval) * interval
