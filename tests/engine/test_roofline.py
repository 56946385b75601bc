"""Step times follow the stated formulas: each figure is worked out by hand here."""

import pytest

from engine.executor.catalog import find_gpu, find_model
from engine.executor.roofline import Roofline, load_of
from engine.plan import Slice

H100 = find_gpu("h100")


def decode(rows, context, window=None):
    return load_of([Slice(None, context - 1, 1, "decode", True)] * rows, window)


def prefill(tokens, start=0, window=None):
    return load_of([Slice(None, start, tokens, "prefill", True)], window)


def test_one_decode_step_reads_every_weight_once():
    """Llama-70B at batch 1 on an H100 (enough memory assumed): 140 GB a token, 0.3 % of the tensor cores."""
    spec = find_model("llama-70b")
    roofline = Roofline(H100, spec)
    cost = roofline.step_cost(decode(1, 1))
    assert cost.bytes_read == pytest.approx(2 * spec.num_matmul_params, rel=1e-4)
    assert cost.linear + cost.head == pytest.approx(2 * spec.num_matmul_params / (3.35e12 * 0.85))
    ideal = cost.bytes_read / H100.bandwidth
    assert cost.flops / ideal / H100.peak_flops == pytest.approx(0.0034, rel=0.02)
    assert roofline.bound(cost) == "bandwidth"


def test_batching_is_almost_free_until_the_ridge_and_proportional_behind_it():
    roofline = Roofline(H100, find_model("llama-8b"))
    one, many = roofline.step_cost(decode(1, 1)), roofline.step_cost(decode(128, 1))
    assert many.linear == one.linear
    big, twice = roofline.step_cost(prefill(4096)), roofline.step_cost(prefill(8192))
    assert twice.linear == pytest.approx(2 * big.linear)
    assert roofline.bound(big) == "compute"


def test_attention_reads_each_context_once():
    spec = find_model("llama-8b")
    cost = Roofline(H100, spec).step_cost(decode(32, 2000))
    assert cost.attention == pytest.approx(32 * 2000 * 131072 / (3.35e12 * 0.85))


def test_prefill_attention_counts_the_causal_triangle():
    load = prefill(100, start=50)
    assert load.full_pairs == sum(range(51, 151))
    assert load.full_reads == 150


@pytest.mark.parametrize(("start", "count"), [(0, 3), (0, 20), (5, 10), (7, 1), (8, 4), (100, 1), (100, 30)])
def test_sliding_layers_read_and_see_only_their_window(start, count, window=8):
    load = prefill(count, start, window)
    seen = [range(max(0, position - window + 1), position + 1) for position in range(start, start + count)]
    assert load.sliding_pairs == sum(len(positions) for positions in seen)
    assert load.sliding_reads == len({position for positions in seen for position in positions})


def test_sliding_layers_make_a_long_context_cheaper():
    gemma = find_model("gemma-3-27b")
    cost = Roofline(H100, gemma).step_cost(decode(1, 100_000, gemma.sliding_window))
    per_layer = gemma.kv_bytes_per_token_per_layer
    assert cost.bytes_read - 2 * gemma.num_matmul_params == pytest.approx(per_layer * (10 * 100_000 + 52 * 1024))


def test_tensor_parallel_divides_the_work_and_pays_two_all_reduces_a_layer():
    spec = find_model("llama-70b")
    one, eight = Roofline(H100, spec, 1).step_cost(decode(4, 1000)), Roofline(H100, spec, 8).step_cost(decode(4, 1000))
    assert eight.linear == pytest.approx(one.linear / 8)
    assert eight.attention == pytest.approx(one.attention / 8)
    moved = 2 * 7 / 8 * 4 * spec.hidden_size * 2 / 450e9
    assert one.all_reduce == 0 and eight.all_reduce == pytest.approx(2 * 80 * (8e-6 + moved))


def test_kv_heads_that_cannot_be_split_are_read_by_each_device():
    spec = find_model("gemma-3-4b")      # 4 KV heads
    four, eight = (Roofline(H100, spec, count).step_cost(decode(4, 1000)) for count in (4, 8))
    assert four.attention == eight.attention


def test_a_small_model_is_launch_bound_until_a_graph_removes_the_launches():
    roofline = Roofline(H100, find_model("smollm2-135m"))
    eager, replayed = roofline.step_cost(decode(1, 10)), roofline.step_cost(decode(1, 10), replayed=True)
    assert eager.total == pytest.approx((30 * 12 + 8) * 5e-6)
    assert roofline.bound(eager) == "launch"
    assert replayed.total < eager.total / 3
    large = Roofline(H100, find_model("llama-8b"))
    assert large.step_cost(decode(1, 10)).launch == large.step_cost(decode(1, 10), replayed=True).launch


def test_an_empty_step_takes_no_device_time():
    assert Roofline(H100, find_model("llama-8b")).step_cost(load_of([], None)).total == 0


def test_swaps_take_the_bus_at_its_speed():
    roofline = Roofline(H100, find_model("llama-8b"))
    assert roofline.copy_time(63e9 * 0.8) == pytest.approx(1.0, abs=1e-3)
    assert roofline.copy_time(0) == 0


def test_measured_rates_are_met_at_their_points_and_lie_between_elsewhere():
    import dataclasses
    machine = dataclasses.replace(H100, matmul_rates=((1, 1e9), (8, 4e9), (64, 2e10)))
    roofline = Roofline(machine, find_model("smollm2-135m"))
    rates = [flops / seconds for seconds, _, flops in (roofline.matmul_time(1000, 1000, rows) for rows in (1, 3, 8, 20, 64, 500))]
    assert rates[0] == pytest.approx(1e9) and rates[2] == pytest.approx(4e9) and rates[4] == pytest.approx(2e10)
    assert rates[5] == pytest.approx(2e10)
    assert rates == sorted(rates)
