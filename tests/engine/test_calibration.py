"""Calibration finds the constants of a machine that is known, and predicts steps it never measured."""

import dataclasses
import json

import pytest

from engine.errors import CommandRefused
from engine.executor import calibration
from engine.executor.catalog import Hardware, find_gpu, find_model
from engine.executor.simulated import SimulatedExecutor

KNOWN = Hardware("known", "Known", 64e9, 2e10, 2e11, 1e10, 1e10, kernel_launch=0.0, launch_overlaps=False, graph_gap=0.0, host_step=3e-4,
                 host_row=4e-6, reserved_bytes=0, matmul_rates=tuple((rows, 4e10 * rows ** 0.4) for rows in calibration.PROBE_ROWS),
                 attention_cost=(2e-7, 1e-8))


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma-3-1b"])
def calibrated(request):
    return calibration.calibrate(SimulatedExecutor(KNOWN, find_model(request.param)), 64e9, 2e10, 2e11, rounds=1)


def test_the_constants_of_a_known_machine_are_found(calibrated):
    found = calibrated.hardware
    assert dict(found.matmul_rates) == pytest.approx(dict(KNOWN.matmul_rates), rel=0.02)
    assert found.attention_cost == pytest.approx(KNOWN.attention_cost, rel=0.1)
    assert (found.host_step, found.host_row) == pytest.approx((KNOWN.host_step, KNOWN.host_row), rel=1e-6)


def test_steps_that_were_not_fitted_are_predicted(calibrated):
    assert len(calibrated.checks) == len(calibration.CHECKED_DECODES) + len(calibration.CHECKED_SLICES) + len(calibration.CHECKED_MIXES)
    assert calibrated.median_error < 0.01 and max(check.error for check in calibrated.checks) < 0.1
    fitted = {(rows, calibration.SHORT) for rows in calibration.PROBE_ROWS} | {(calibration.LONG_ROWS, calibration.LONG)}
    assert not fitted & set(calibration.CHECKED_DECODES), "a step that was fitted is no check"


def test_a_wrong_machine_is_noticed(calibrated):
    """The error is real: predictions of a machine twice as fast miss by half."""
    check = calibrated.checks[0]
    assert calibration.Check("x", check.measured / 2, check.measured).error == pytest.approx(0.5)


def test_what_was_measured_can_be_simulated_afterwards(calibrated, tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path))
    with pytest.raises(CommandRefused, match="calibrate"):
        find_gpu("this-machine")
    path = calibration.save(calibrated)
    assert json.loads(path.read_text())["median_error"] == calibrated.median_error
    assert find_gpu("this-machine") == dataclasses.replace(calibrated.hardware)
    path.write_text("{}")
    with pytest.raises(CommandRefused):
        find_gpu("this-machine")
