"""Each preset runs to its end on the simulated device, and shows what its help says."""

import pytest

from engine.engine import Engine
from engine.executor.catalog import find_model, parse_device
from engine.executor.pseudo_text import PseudoTokenizer
from engine.executor.simulated import SimulatedExecutor
from engine.metrics import RunMeter
from engine.presets import PRESETS, preset_workload
from engine.workload import WorkloadDriver


def play(key):
    preset = PRESETS[key]
    hardware, count = parse_device(preset.device if preset.device != "model" else "simulated:t4")
    tokenizer = PseudoTokenizer()
    executor = SimulatedExecutor(hardware, find_model(preset.model or "smollm2-135m"), count, tokenizer=tokenizer)
    engine = Engine(executor, preset.engine_config(), tokenizer=tokenizer)
    meter, reasons = RunMeter(), set()

    def watch(event):
        meter.feed(event)
        reasons.update(one["reason"] for one in event.get("waiting", {}).get("refused", ()))

    driver = WorkloadDriver(preset_workload(key), engine, tokenizer)
    driver.run(watch)
    assert driver.done and not driver.refused and not engine.has_work
    report = meter.report()
    assert report["requests"] == {"total": preset_workload(key).num_requests, "finished": preset_workload(key).num_requests}
    return report, reasons


@pytest.mark.parametrize("key", ["classroom", "chat", "batch", "long_prompts"])
def test_ordinary_presets_finish_without_preemption(key):
    report, _ = play(key)
    assert report["preemptions"]["offloads"] == report["preemptions"]["soft_resets"] == 0


def test_a_tiny_cache_makes_requests_wait_for_blocks_and_swaps():
    report, reasons = play("tiny_cache")
    assert "no_free_block" in reasons and report["cache_peak"] == 1.0 and report["preemptions"]["offloads"] > 0


def test_thrashing_computes_much_of_its_work_twice():
    report, _ = play("thrash")
    assert report["preemptions"]["soft_resets"] > 20 and report["preemptions"]["recomputed_tokens"] > 500


def test_a_shared_system_prompt_is_computed_once_for_each_group():
    report, _ = play("shared_prefix")
    assert report["prefix_hit_rate"] > 0.75


def test_static_batching_holds_everybody_at_the_barrier():
    report, reasons = play("static_batching")
    assert "static_barrier" in reasons and report["padding_share"] > 0.2 and report["idle_cell_share"] > 0.2


def test_a_heavy_tail_runs_on_eight_simulated_gpus_and_its_p99_is_far_from_its_median():
    report, _ = play("heavy_tail")
    assert report["ttft"]["p99"] > 2 * report["ttft"]["p50"] and report["graphs"]["replay"] > report["graphs"]["capture"]
