"""Every active request's block tables as rows of one array, kept from step to step.

A step needs the tables of its requests as a rectangle of int32. Building it from Python lists costs time in proportion to
all the context there is; here a row is written once and afterwards only extended by the blocks that were added, and a
step takes its rows in one indexing operation.
"""

from __future__ import annotations

import numpy as np

from engine.cache.layer_groups import CacheLayout
from engine.request import Request

#: Row 0 belongs to nobody: all its entries are the padding-read block.
PADDING_ROW = 0


class _Entry:
    __slots__ = ("last_step", "lengths", "preemptions", "row")

    def __init__(self, row: int, groups: int) -> None:
        self.row = row
        self.preemptions = 0
        self.last_step = -2
        self.lengths = [0] * groups


class BlockTables:
    """int32 arrays [rows, width], one a layer group; entries past a request's blocks are ``layout.padding_read``."""

    def __init__(self, layout: CacheLayout) -> None:
        self._padding = layout.padding_read
        self._num_groups = len(layout.groups)
        self._tables = [np.full((16, 8), self._padding, np.int32) for _ in layout.groups]
        self._entries: dict[Request, _Entry] = {}
        self._free_rows = list(range(15, PADDING_ROW, -1))
        self._step = 0

    def rows_of(self, requests: list[Request], recheck: bool) -> np.ndarray:
        """The rows (intp [R]) of these requests, brought up to date. Call once a step, with every request of the step.

        A row is extended when its table has grown. It is written anew when something else may have changed: ``recheck``
        (the step copies or swaps blocks, so a table entry may have been replaced), a preemption since, a
        shorter table, or a request that was not in the step before.
        """
        self._step += 1
        step, entries = self._step, self._entries
        rows = np.empty(len(requests), np.intp)
        for i, request in enumerate(requests):
            entry = entries.get(request)
            if entry is None:
                entry = entries[request] = _Entry(self._take_row(), self._num_groups)
            preemptions = request.num_offloads + request.num_soft_resets
            anew = recheck or entry.last_step != step - 1 or entry.preemptions != preemptions
            for group, table in enumerate(request.tables):
                length, known = len(table), entry.lengths[group]
                if anew or length < known:
                    self._write(group, entry.row, 0, table)
                    self._tables[group][entry.row, length:max(known, length)] = self._padding
                elif length > known:
                    self._write(group, entry.row, known, table[known:])
                entry.lengths[group] = length
            if not request.tables:                       # a finished static slot whose blocks are gone
                self._clear(entry)
            entry.last_step, entry.preemptions = step, preemptions
            rows[i] = entry.row
        return rows

    def take(self, group: int, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy the tables of ``rows`` into ``out``, int32 [len(rows), width]."""
        table = self._tables[group]
        if out.shape[1] > table.shape[1]:
            self._widen(group, out.shape[1])
            table = self._tables[group]
        np.take(table[:, :out.shape[1]], rows, axis=0, out=out)

    def array(self, group: int, min_width: int) -> np.ndarray:
        """The whole array of a group, at least ``min_width`` wide: for looking up single blocks by row."""
        if min_width > self._tables[group].shape[1]:
            self._widen(group, min_width)
        return self._tables[group]

    def _write(self, group: int, row: int, start: int, blocks: list[int]) -> None:
        end = start + len(blocks)
        if end > self._tables[group].shape[1]:
            self._widen(group, end)
        self._tables[group][row, start:end] = blocks

    def _widen(self, group: int, width: int) -> None:
        old = self._tables[group]
        new = np.full((old.shape[0], max(width, 2 * old.shape[1])), self._padding, np.int32)
        new[:, :old.shape[1]] = old
        self._tables[group] = new

    def _take_row(self) -> int:
        if not self._free_rows:
            # Requests that were in neither of the last two steps have ended or wait; their rows can be rebuilt.
            for request in [request for request, entry in self._entries.items() if entry.last_step < self._step - 1]:
                entry = self._entries.pop(request)
                self._clear(entry)
                self._free_rows.append(entry.row)
        if not self._free_rows:
            old_rows = self._tables[0].shape[0]
            for group, old in enumerate(self._tables):
                more = np.full((old_rows, old.shape[1]), self._padding, np.int32)
                self._tables[group] = np.concatenate([old, more])
            self._free_rows.extend(range(2 * old_rows - 1, old_rows - 1, -1))
        return self._free_rows.pop()

    def _clear(self, entry: _Entry) -> None:
        for group, known in enumerate(entry.lengths):
            self._tables[group][entry.row, :known] = self._padding
            entry.lengths[group] = 0
