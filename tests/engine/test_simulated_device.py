"""The simulated device keeps the executor's contract, in simulated time, and is a function of its inputs."""

import pytest

from engine.cache.layer_groups import CacheLayout, group_layers
from engine.config import EngineConfig
from engine.errors import CapacityExceeded
from engine.executor.catalog import find_gpu, find_model
from engine.executor.simulated import MAX_GRAPHS, SimulatedExecutor, scramble
from engine.plan import Slice, StepPlan
from engine.request import Request
from engine.sampling_params import SamplingParams

GRAPHS = EngineConfig(use_cuda_graph=True)
ASYNC = EngineConfig(use_cuda_graph=True, use_async_batching=True)


def executor(config=EngineConfig(), model="llama-8b", blocks=100, **options):
    made = SimulatedExecutor(find_gpu("h100"), find_model(model), **options)
    size = 256 * made.spec.kv_bytes_per_token // len(group_layers(made.spec))
    made.allocate(CacheLayout(group_layers(made.spec), blocks, 256, size, 10), config)
    return made


def request(index=0, length=100, **params):
    return Request(f"r{index}", index, [1] * length, length, SamplingParams(**params), seed=index)


def decode_plan(step=0, rows=4, length=100):
    return StepPlan(step, [Slice(request(index, length), length - 1, 1, "decode", True) for index in range(rows)])


def run(device, plan):
    return device.collect(device.launch(plan))


def test_everything_it_reports_is_labelled_simulated():
    device = executor(GRAPHS)
    assert device.info.simulated and "simulated" in device.info.device and device.info.notes
    assert run(device, decode_plan()).graph.backend == "simulated"


def test_the_clock_moves_by_the_step_and_never_by_itself():
    device = executor()
    assert device.clock.now() == device.clock.now() == 0.0
    result = run(device, decode_plan())
    cost = device.roofline.host_time(4) + sum(result.details[part] for part in ("linear", "attention", "head", "launch"))
    assert device.clock.now() == result.device[1] == pytest.approx(cost)
    device.clock.advance_to(0.0)
    assert device.clock.now() == result.device[1]


def test_a_run_is_a_function_of_its_inputs():
    runs = [[run(device, decode_plan(step)) for step in range(5)] for device in (executor(seed=3), executor(seed=3))]
    assert runs[0] == runs[1]
    assert run(executor(seed=4), decode_plan()).tokens != runs[0][0].tokens


def test_a_requests_tokens_do_not_depend_on_its_batch_or_on_preemption():
    device = executor()
    alone = run(device, StepPlan(0, [Slice(request(2), 0, 100, "prefill", True)])).tokens
    crowd = run(device, decode_plan(1, rows=8)).tokens
    assert alone == [crowd[2]] and len(set(crowd)) == 8


def test_only_sampling_slices_yield_tokens_and_padding_yields_none():
    device = executor()
    plan = StepPlan(0, [Slice(request(0), 0, 50, "prefill", False), Slice(request(1), 99, 1, "decode", True),
                        Slice(request(2), 99, 1, "padding", False)])
    result = run(device, plan)
    assert len(result.tokens) == len(result.logprobs) == 1


def test_no_end_token_unless_a_length_was_configured():
    plain, stopping = executor(), executor(stop_after=(5, 9))
    ends = plain.spec.eos_token_ids
    one = request(7, 100, max_new_tokens=50)
    assert not any(plain.token_at(one, position) in ends for position in range(100, 3000))
    length = next(index for index in range(50) if stopping.token_at(one, 100 + index) in ends) + 1
    assert 5 <= length <= 9
    ignoring = request(7, 100, max_new_tokens=50, ignore_eos=True)
    assert not any(stopping.token_at(ignoring, 100 + index) in ends for index in range(50))


def test_tokens_stay_inside_the_tokenizer():
    class Tokenizer:
        all_special_ids = [0, 1, 2]

        def __len__(self):
            return 300

    device = executor(tokenizer=Tokenizer())
    drawn = {device.token_at(request(index), 100) for index in range(2000)}
    assert min(drawn) >= 3 and max(drawn) < 300 and len(drawn) > 250


def test_mixing_spreads_neighbouring_inputs():
    values = {scramble(0, seed, position) % 1000 for seed in range(10) for position in range(100)}
    assert len(values) > 550         # 1000 draws of 1000: 632 expected


def test_graphs_capture_once_then_replay_the_padded_shape():
    device = executor(GRAPHS)
    first, second = run(device, decode_plan(0, rows=4)), run(device, decode_plan(1, rows=9))
    assert (first.graph.action, first.graph.key, first.graph.q_padding, first.graph.kv_padding) == ("capture", "q16 kv256", 12, 156)
    assert (second.graph.action, second.graph.q_padding) == ("replay", 7)
    assert second.device[1] - second.device[0] < (first.device[1] - first.device[0]) / 2
    assert run(device, decode_plan(2, rows=17)).graph.action == "capture"
    assert run(device, decode_plan(3, rows=4, length=257)).graph.key == "q16 kv512"


def test_changed_intervals_and_a_new_cache_forget_the_graphs():
    device = executor(GRAPHS)
    run(device, decode_plan())
    device.configure(GRAPHS.replaced({"q_padding_interval_size": 8}))
    assert run(device, decode_plan()).graph.action == "capture"
    device.configure(EngineConfig())
    eager = run(device, decode_plan()).graph
    assert eager.action == "eager" and eager.why


def test_the_graph_cache_is_bounded():
    device = executor(GRAPHS.replaced({"q_padding_interval_size": 1}))
    for rows in range(1, MAX_GRAPHS + 2):
        run(device, decode_plan(rows, rows=rows))
    assert run(device, decode_plan(0, rows=MAX_GRAPHS + 1)).graph.action == "replay"
    assert run(device, decode_plan(0, rows=1)).graph.action == "capture"


def test_async_prepares_the_next_step_while_the_device_computes():
    device = executor(ASYNC)
    assert device.max_in_flight == 2 and executor().max_in_flight == 1
    run(device, decode_plan())                                        # capture
    handles = [device.launch(decode_plan(1))]
    results = []
    for step in range(2, 12):
        handles.append(device.launch(decode_plan(step)))
        results.append(device.collect(handles.pop(0)))
    results.append(device.collect(handles.pop()))
    for before, after in zip(results, results[1:]):
        assert after.prepare[0] < before.device[1]                    # overlap …
        assert after.device[0] >= before.device[1]                    # … on the host, never on the device
    busy = sum(result.device[1] - result.device[0] for result in results)
    assert busy / (results[-1].device[1] - results[0].device[0]) > 0.999
    synchronous = executor(GRAPHS)
    run(synchronous, decode_plan())
    began = synchronous.clock.now()
    for step in range(1, 12):
        run(synchronous, decode_plan(step))
    assert results[-1].device[1] - results[0].prepare[0] < synchronous.clock.now() - began


def test_swaps_and_block_copies_take_time_and_are_counted():
    device = executor()
    plain = run(device, decode_plan())
    plan = decode_plan()
    plan.swap_out, plan.swap_in, plan.copies = [(0, 0), (1, 1)], [(2, 5)], [(3, 9)]
    copied = run(device, plan)
    assert copied.swap_bytes == (2 * 256 * 131072, 256 * 131072)
    longer = (copied.device[1] - copied.device[0]) - (plain.device[1] - plain.device[0])
    assert longer == pytest.approx(device.roofline.copy_time(2 * 256 * 131072) + device.roofline.copy_time(256 * 131072)
                                   + device.roofline.block_copy_time(256 * 131072))


def test_free_memory_is_what_weights_leave_and_too_large_a_cache_is_refused():
    device = executor()
    room = 80e9 - 2e9 - 2 * device.spec.num_params
    assert device.free_memory() == pytest.approx(room)
    with pytest.raises(CapacityExceeded, match="fewer blocks"):
        executor(blocks=3000)
    with pytest.raises(CapacityExceeded, match="more devices"):
        executor(model="llama-405b")


def test_a_static_padding_slot_costs_what_a_decode_costs():
    device = executor()
    decode = StepPlan(0, [Slice(request(0), 99, 1, "decode", True)] * 2)
    padded = StepPlan(0, [Slice(request(0), 99, 1, "decode", True), Slice(request(1), 99, 1, "padding", False)])
    assert run(device, decode).details == run(device, padded).details
