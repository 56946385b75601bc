"""The engine on CUDA: exact, recorded in graphs, ahead of the device, with a pinned pool."""

from __future__ import annotations

import pytest
import torch

from engine.cache.layer_groups import CacheLayout, group_layers
from engine.config import EngineConfig
from engine.executor.model import ModelExecutor
from engine.plan import DECODE, PREFILL, Slice, StepPlan
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.model.helpers import finish, loaded_tiny, make_engine, outputs, reference, run, tiny_prompts
from tests.tiny_models import KINDS

GREEDY = SamplingParams(max_new_tokens=20)
GRAPHS = {"use_cuda_graph": True, "q_padding_interval_size": 8, "kv_padding_interval_size": 32}
MODES = {"eager": {}, "graphs": GRAPHS, "async": {**GRAPHS, "use_async_batching": True}}


@pytest.fixture(autouse=True)
def exact_products():
    """fp32 means fp32: no TensorFloat-32 in matrix products."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def counters(engine) -> dict[str, int]:
    return engine.snapshot()["state"]["counters"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_greedy_in_fp32_equals_generate(device, kind, mode):
    loaded, prompts = loaded_tiny(kind, str(device)), tiny_prompts(16)
    engine = make_engine(loaded, block_size=16, num_blocks=300, max_batch_tokens=48, **MODES[mode])
    assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)
    if mode != "eager":
        assert counters(engine)["captures"] > 0 and counters(engine)["replays"] > 0
        assert counters(engine)["eager_steps"] == 0
    engine.close()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_offload_soft_reset_and_restore_through_the_pinned_pool(device, kind):
    loaded, prompts = loaded_tiny(kind, str(device)), tiny_prompts(10, longest=24, seed=2)
    block = make_engine(loaded, block_size=4, num_blocks=64).cache.layout.block_bytes
    engine = make_engine(loaded, block_size=4, num_blocks=36 if kind == "gemma3" else 22, max_batch_tokens=24, safety_margin=0.0,
                         cpu_offload_space=9.5 * block / 2**30, **MODES["async"])
    assert engine.executor._swap._slots.is_pinned()
    assert run(engine, prompts, SamplingParams(max_new_tokens=40)) == reference(loaded, prompts, 40)
    seen = counters(engine)
    assert min(seen["offloads"], seen["soft_resets"], seen["restores"]) > 0
    engine.close()


def test_events_name_cuda_and_the_device(device):
    engine = make_engine(loaded_tiny("llama", str(device)), block_size=16, num_blocks=64, **GRAPHS)
    engine.submit([5, 6, 7], GREEDY)
    assert engine.step()["graph"]["backend"] == "cuda"
    finish(engine)
    assert engine.executor.info.device == torch.cuda.get_device_name(device)


def test_five_identical_prompts_give_five_identical_outputs_equal_to_eager(device):
    loaded, prompt = loaded_tiny("llama", str(device)), tiny_prompts(2, seed=30)[1]
    knobs = {"block_size": 16, "num_blocks": 100, "allow_block_sharing": False}
    eager = run(make_engine(loaded, **knobs), [prompt], GREEDY)[0]
    assert run(make_engine(loaded, **knobs, **GRAPHS), [prompt] * 5, GREEDY) == [eager] * 5


def test_sampled_text_is_the_same_with_other_company(device):
    loaded, prompt = loaded_tiny("llama", str(device)), tiny_prompts(2, seed=31)[1]
    params = SamplingParams(max_new_tokens=15, temperature=1.0, top_p=0.9, seed=5)
    alone = run(make_engine(loaded, block_size=16, num_blocks=100), [prompt], params)[0]
    engine = make_engine(loaded, block_size=16, num_blocks=100, **MODES["async"])
    for other in tiny_prompts(6, seed=32):
        engine.submit(other, SamplingParams(max_new_tokens=12, temperature=1.3, top_k=9, min_p=0.02))
    ids = engine.submit(prompt, params)
    finish(engine)
    assert outputs(engine, ids) == [alone]


def prepared(device, **knobs) -> tuple[ModelExecutor, Request]:
    loaded = loaded_tiny("llama", str(device))
    executor = ModelExecutor(loaded)
    groups = group_layers(loaded.spec)
    executor.allocate(CacheLayout(groups, 32, 16, 0), EngineConfig().replaced(knobs))
    request = Request("r", 1, [5, 6, 7, 8], 4, SamplingParams(), tables=[[0, 1]])
    return executor, request


@pytest.mark.parametrize("mode", ["eager", "async"])
def test_launch_returns_while_the_device_computes_and_the_next_step_takes_its_token_there(device, mode):
    """The first step is held up on the device itself; still both launches return, and the second decodes a token that the
    host has not seen."""
    executor, request = prepared(device, **MODES[mode])
    slices = [[Slice(request, 0, 4, PREFILL, True)], [Slice(request, 4, 1, DECODE, True)]]
    for step, pieces in enumerate(slices if mode == "async" else []):       # so that nothing is left to record
        executor.collect(executor.launch(StepPlan(step, pieces)))
        request.tokens.append(9)
    del request.tokens[4:]
    forward = executor._forward
    if mode == "eager":
        executor._forward = lambda batch, cache: (torch.cuda._sleep(2_000_000_000), forward(batch, cache))[1]
        executor._forward.name = "held"
    else:
        with torch.cuda.stream(executor._lane._compute):
            torch.cuda._sleep(2_000_000_000)
    first = executor.launch(StepPlan(10, slices[0]))
    second = executor.launch(StepPlan(11, slices[1]))
    assert not first.job.events[1].query(), "launch waited for the device"
    executor._forward = forward
    results = [executor.collect(first), executor.collect(second)]
    assert results[0].tokens + results[1].tokens == reference(loaded_tiny("llama", str(device)), [[5, 6, 7, 8]], 2)[0]
    assert results[1].prepare[1] < results[0].device[1], "the overlap is on record"
    assert results[0].device[1] <= results[1].device[0] + 1e-4


def test_padding_rows_leave_every_real_slot_alone(device):
    executor, request = prepared(device, **GRAPHS)
    storage = executor._cache.storage
    others = list(range(2, 33))             # all blocks but the request's own two and the padding-write block
    storage[:, :, others] = 0.125
    torch.cuda.synchronize()
    for step in range(6):
        pieces = (
            [Slice(request, 0, 4, PREFILL, True)] if step == 0 else [Slice(request, len(request.tokens) - 1, 1, DECODE, True)]
        )
        executor.collect(executor.launch(StepPlan(step, pieces)))
        request.tokens.append(11)
    torch.cuda.synchronize()
    assert bool((storage[:, :, others] == 0.125).all())


def test_swapped_blocks_come_back_bit_for_bit(device):
    loaded = loaded_tiny("gemma3", str(device))
    executor = ModelExecutor(loaded)
    executor.allocate(CacheLayout(group_layers(loaded.spec), 32, 4, 0, num_swap_slots=9), EngineConfig())
    storage = executor._cache.storage
    storage.copy_(torch.randn(storage.shape, generator=torch.Generator().manual_seed(0)))
    before = storage.clone()
    torch.cuda.synchronize()
    blocks, slots, targets = [3, 17, 4, 30, 9], [8, 0, 1, 5, 2], [11, 12, 31, 0, 25]
    executor.collect(executor.launch(StepPlan(1, swap_out=list(zip(blocks, slots, strict=True)))))
    storage[:, :, blocks] = 0.0
    torch.cuda.synchronize()
    executor.collect(executor.launch(StepPlan(2, swap_in=list(zip(slots, targets, strict=True)))))
    for block, target in zip(blocks, targets, strict=True):
        assert torch.equal(storage[:, :, target], before[:, :, block])


def test_rebuilding_the_cache_many_times_neither_leaks_nor_breaks_the_graphs(device):
    loaded, prompts = loaded_tiny("llama", str(device)), tiny_prompts(4, seed=35)
    engine = make_engine(loaded, block_size=16, num_blocks=100, **GRAPHS)
    used = []
    for size in (8, 16, 32, 8, 16, 32):
        engine.configure({"block_size": size, "num_blocks": 1600 // size})
        assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)
        used.append(torch.cuda.memory_allocated(device))
    assert used[-1] <= used[2] * 1.05 + 2**20
    engine.close()
