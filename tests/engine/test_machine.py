"""The roof of the roofline is measured on this machine, and once."""

from __future__ import annotations

from engine.executor.catalog import find_gpu, find_model
from engine.executor.machine import measure_machine
from engine.executor.simulated import SimulatedExecutor


def test_this_machine_is_measured_once():
    first = measure_machine("cpu", "float32")
    assert first["source"] == "measured" and first["bandwidth"] > 1e8 and first["peak_flops"] > 1e8
    assert measure_machine("cpu", "float32") is first


def test_a_simulated_device_has_the_roof_of_its_data_sheet():
    gpu = find_gpu("h100")
    assert SimulatedExecutor(gpu, find_model("llama-70b"), 8).machine == {
        "bandwidth": 8 * gpu.bandwidth, "peak_flops": 8 * gpu.peak_flops, "source": "data sheet"}
