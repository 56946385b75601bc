"""The CSV tables hold the recording's own figures, and no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import numpy
import pytest

from tests.viz.runs import async_run, timed_run
from viz.metrics_csv import REQUEST_COLUMNS, STEP_COLUMNS, percentile, tables


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_per_request_with_its_true_times():
    (row,) = rows(tables(timed_run())[0])
    assert list(row) == list(REQUEST_COLUMNS)
    assert (row["id"], row["state"], row["reason"], row["output_tokens"]) == ("r1", "finished", "length", "2")
    assert (row["queue_ms"], row["ttft_ms"], row["itl_p50_ms"], row["total_ms"]) == ("400.0", "500.0", "500.0", "1000.0")


def test_a_request_that_was_retired_keeps_its_row():
    run = timed_run()
    run.events.append({"v": 1, "type": "engine", "room": "main", "seq": 4, "step": 2, "time": 2.0, "retired": ["r1"]})
    assert rows(tables(run)[0])[0]["state"] == "finished"


def test_a_row_per_step_and_the_device_time_of_its_own_step():
    first, second = rows(tables(timed_run())[1])
    assert list(first) == list(STEP_COLUMNS)
    assert (first["prefill_tokens"], first["decode_tokens"], first["blocks_owned"], first["device_ms"]) == ("3", "0", "1", "80.0")
    assert (second["decode_tokens"], second["device_ms"]) == ("1", "480.0")
    first, second = rows(tables(async_run())[1])
    assert (first["device_ms"], second["device_ms"]) == ("80.0", ""), "step 2 had not come back when the recording ended"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_a_cell_is_never_a_formula(text):
    run = timed_run()
    run.events[2]["transitions"][0]["reason"] = text
    assert rows(tables(run)[0])[0]["reason"] == "'" + text


def test_percentiles_are_those_of_numpy():
    values = sorted([5.0, 1.0, 9.5, 2.25, 7.0, 3.0])
    for percent in (0, 10, 50, 90, 99, 100):
        assert percentile(values, percent) == pytest.approx(numpy.percentile(values, percent), abs=1e-3)
    assert percentile([], 50) == ""
