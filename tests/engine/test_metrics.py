"""Figures computed from events are those worked out by hand, and those of the engine itself."""

import statistics

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.metrics import RunMeter, percentile, summary
from engine.sampling_params import SamplingParams
from engine.state import apply_event, block_counts, empty_state
from engine.workload import Workload, WorkloadDriver
from tests.engine.shadow import ShadowExecutor, tiny_spec


def event(kind="step", time=0.0, **sections):
    return {"type": kind, "time": time, **sections}


def arrival(name, time, prompt=10):
    return event("submit", time, requests=[{"id": name, "arrival": time, "prompt_tokens": [1] * prompt}])


def moved(name, cause, to, time):
    return {"id": name, "cause": cause, "to": to, "time": time}


def by_hand():
    meter = RunMeter()
    meter.feed(event("engine", 0.0, layout={"num_blocks": 10}))
    meter.feed(arrival("a", 1.0))
    meter.feed(arrival("b", 2.0))
    meter.feed(event(time=3.0, transitions=[moved("a", "admitted", "prefilling", 3.0)], blocks=[["alloc", "a", 0, [1, 2]]],
                     tokens=[{"id": "a"}], budget={"tokens": [10, 20]}, slices=[["a", 0, 10, "prefill", True]],
                     timing={"device": [1, 2.5, 3.0]}))
    meter.feed(event(time=4.0, tokens=[{"id": "a"}], transitions=[moved("b", "admitted", "prefilling", 4.0)],
                     blocks=[["share", "b", 0, [1], "prefix"], ["alloc", "b", 0, [3]]], budget={"tokens": [20, 20]},
                     slices=[["a", 10, 1, "decode", True]], graph={"action": "replay", "q_padding": 10},
                     timing={"device": [2, 3.5, 4.0]}, counters={"prefix_query_tokens": 10, "prefix_hit_tokens": 4}))
    meter.feed(event(time=6.0, tokens=[{"id": "a"}, {"id": "b"}], blocks=[["free", "a"]],
                     transitions=[moved("a", "length", "finished", 6.0), moved("b", "length", "finished", 6.0)],
                     budget={"tokens": [20, 20]}, slices=[]))
    return meter


def test_latencies_worked_out_by_hand():
    report = by_hand().report()
    assert report["ttft"] == pytest.approx({"count": 2, "mean": 3.0, "p50": 3.0, "p90": 3.8, "p99": 3.98, "max": 4.0})
    assert report["itl"]["count"] == 2 and report["itl"]["mean"] == 1.5 and report["itl"]["max"] == 2.0
    assert report["tpot"] == {"count": 1, "mean": 1.5, "p50": 1.5, "p90": 1.5, "p99": 1.5, "max": 1.5}
    assert report["queue"]["mean"] == 2.0 and report["e2e"]["mean"] == 4.5


def test_rates_and_waste_worked_out_by_hand():
    report = by_hand().report()
    assert report["seconds"] == 5.0 and report["output_tok_s"] == pytest.approx(4 / 5) and report["requests_s"] == pytest.approx(2 / 5)
    assert report["budget_use"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert report["padding_share"] == pytest.approx(10 / 60)
    assert report["cache_use"] == pytest.approx((2 * 1 + 3 * 2) / (6 * 10))       # 2 blocks for 1 s, 3 for 2 s, of 10 for 6 s
    assert report["cache_peak"] == pytest.approx(0.3)
    assert report["prefix_hit_rate"] == pytest.approx(0.4)
    assert report["device_busy"] == pytest.approx(1 / 5)


def test_goodput_counts_only_requests_that_keep_every_limit():
    meter = by_hand()
    assert meter.report({"ttft": 3.0})["goodput"] == {"limits": {"ttft": 3.0}, "share": 0.5, "requests_s": pytest.approx(0.2)}
    assert meter.report({"ttft": 4.0, "tpot": 1.0})["goodput"]["share"] == 0.5
    assert meter.report({"ttft": 4.0, "tpot": 2.0})["goodput"]["share"] == 1.0
    with pytest.raises(ValueError, match="not for speed"):
        meter.report({"speed": 1})


def test_percentiles_interpolate_as_numpy_does():
    numpy = pytest.importorskip("numpy")
    values = sorted([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    for share in (0.0, 0.01, 0.5, 0.9, 0.99, 1.0):
        assert percentile(values, share) == pytest.approx(numpy.percentile(values, share * 100))
    assert summary([]) is None and summary([2.0])["p99"] == 2.0


def test_an_empty_run_has_no_figures_and_no_crash():
    report = RunMeter().report({"ttft": 1.0})
    assert report["ttft"] is None and report["output_tok_s"] is None and report["goodput"]["share"] is None


def pressed_run(**config):
    engine = Engine(ShadowExecutor(tiny_spec()), EngineConfig(**{
        "block_size": 4, "num_blocks": 24, "max_batch_tokens": 16, "max_requests_per_batch": 6, "safety_margin": 0.0,
        "cpu_offload_space": 0.002, **config}))
    workload = Workload.from_dict({"num_requests": 30, "arrivals": {"kind": "poisson", "rate": 2000}, "prompt_length": {
        "kind": "uniform", "low": 1, "high": 12}, "output_length": {"kind": "uniform", "low": 1, "high": 30}, "shared_prefix": {"tokens": 8}})
    meter, state, mistakes = RunMeter(), empty_state(), []

    def watch(one):
        meter.feed(one)
        apply_event(state, one)
        if len(meter._owned) != block_counts(state)["owned"]:
            mistakes.append(one["seq"])

    driver = WorkloadDriver(workload, engine)
    driver.run(watch)
    return engine, driver, meter, mistakes


def test_figures_agree_with_the_engines_own_records():
    engine, driver, meter, mistakes = pressed_run()
    assert not mistakes and driver.done and driver.submitted == 30
    assert engine.recorder.counters["offloads"] > 0 and engine.recorder.counters["soft_resets"] > 0
    report = meter.report()
    known = list(engine.requests.values())
    assert report["requests"] == {"total": 30, "finished": 30}
    assert report["ttft"]["mean"] == pytest.approx(statistics.fmean(one.first_token - one.arrival for one in known), abs=1e-5)
    assert report["e2e"]["max"] == pytest.approx(max(one.finished - one.arrival for one in known), abs=1e-5)
    gaps = [after - before for one in known for before, after in zip(one.token_times, one.token_times[1:])]
    assert report["itl"]["count"] == len(gaps) and report["itl"]["mean"] == pytest.approx(statistics.fmean(gaps), abs=1e-5)
    assert report["output_tokens"] == engine.recorder.counters["output_tokens"]
    assert 0 < report["cache_use"] <= report["cache_peak"] <= 1
    assert 0 < report["device_busy"] <= 1


def test_a_run_on_the_simulated_device_repeats_exactly():
    assert pressed_run()[2].report() == pressed_run()[2].report()


def test_a_meter_that_joins_late_counts_blocks_from_the_snapshot():
    engine = Engine(ShadowExecutor(tiny_spec()), EngineConfig(block_size=4, num_blocks=24, max_batch_tokens=16))
    engine.submit([5] * 9, SamplingParams(max_new_tokens=8))
    for _ in range(3):
        engine.step()
    engine.take_events()
    meter = RunMeter()
    meter.feed(engine.snapshot())
    while engine.has_work:
        meter.feed(engine.step())
    assert meter.report()["requests"]["finished"] == 1 and len(meter._owned) == 0
