"""The executor: memory, copies, overlap, order, and what it says about itself."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch

from engine.cache.layer_groups import CacheLayout, group_layers
from engine.config import EngineConfig
from engine.errors import CapacityExceeded
from engine.executor.model import ModelExecutor
from engine.plan import DECODE, PREFILL, Slice, StepPlan
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.model.helpers import finish, loaded_tiny, make_engine, outputs, reference, run, tiny_prompts

CONFIG = EngineConfig()
ASYNC = EngineConfig().replaced({"use_cuda_graph": True, "use_async_batching": True, "q_padding_interval_size": 4})


def make_executor(
    kind: str = "llama", num_blocks: int = 32, block_size: int = 4, slots: int = 0, config: EngineConfig = CONFIG
) -> tuple[ModelExecutor, CacheLayout]:
    loaded = loaded_tiny(kind)
    executor = ModelExecutor(loaded)
    groups = group_layers(loaded.spec)
    layout = CacheLayout(
        groups, num_blocks, block_size, len(groups[0].layers) * block_size * loaded.spec.kv_bytes_per_token_per_layer, slots
    )
    executor.allocate(layout, config)
    return executor, layout


def one_request(tokens: list[int], layout: CacheLayout, first_block: int = 0) -> Request:
    request = Request("r", 1, list(tokens), len(tokens), SamplingParams())
    for group in layout.groups:
        count = group.blocks_needed(len(tokens) + 12, layout.block_size)
        request.tables.append(list(range(first_block, first_block + count)))
        first_block += count
    return request


def test_blocks_come_back_from_the_host_bit_for_bit_in_any_order():
    executor, layout = make_executor("gemma3", slots=9)
    storage = executor._cache.storage
    storage.copy_(torch.randn(storage.shape, generator=torch.Generator().manual_seed(0)))
    before = storage.clone()
    blocks, slots, targets = [3, 17, 4, 30, 9], [8, 0, 1, 5, 2], [11, 12, 31, 0, 25]
    out = executor.collect(executor.launch(StepPlan(1, swap_out=list(zip(blocks, slots, strict=True)))))
    storage[:, :, blocks] = float("nan")
    back = executor.collect(executor.launch(StepPlan(2, swap_in=list(zip(slots, targets, strict=True)))))
    for block, target in zip(blocks, targets, strict=True):
        assert torch.equal(storage[:, :, target], before[:, :, block])
    assert out.swap_bytes == (5 * layout.block_bytes, 0)
    assert back.swap_bytes == (0, 5 * layout.block_bytes)


def test_a_step_reads_out_before_it_copies_in_and_copies_blocks_last():
    """Block 1 leaves for slot 0, slot 1 comes into block 1, and block 1 is copied to block 2: each must see the right one."""
    executor, _ = make_executor(slots=2)
    storage = executor._cache.storage
    for block in range(4):
        storage[:, :, block] = float(block)
    executor.collect(executor.launch(StepPlan(1, swap_out=[(3, 1)])))
    executor.collect(executor.launch(StepPlan(2, swap_out=[(1, 0)], swap_in=[(1, 1)], copies=[(1, 2)])))
    executor.collect(executor.launch(StepPlan(3, swap_in=[(0, 0)])))
    assert [storage[0, 0, block, 0, 0, 0].item() for block in range(4)] == [1.0, 3.0, 3.0, 3.0]


def test_a_cache_that_does_not_fit_is_refused_in_words_and_a_smaller_one_still_works():
    executor, layout = make_executor()
    with pytest.raises(CapacityExceeded, match=r"does not fit cpu .* use fewer blocks"):
        executor.allocate(CacheLayout(layout.groups, 2**40, 4, layout.block_bytes), CONFIG)
    with pytest.raises(CapacityExceeded):
        executor.allocate(CacheLayout(layout.groups, 8, 4, layout.block_bytes, num_swap_slots=2**40), CONFIG)
    executor.allocate(CacheLayout(layout.groups, 8, 4, layout.block_bytes), CONFIG)
    request = one_request([5, 6, 7], layout)
    assert len(executor.collect(executor.launch(StepPlan(1, [Slice(request, 0, 3, PREFILL, True)]))).tokens) == 1


def test_the_memory_of_the_old_cache_counts_as_free_for_the_new_one_and_only_once(monkeypatch):
    free = {"bytes": 2**30}
    monkeypatch.setattr("engine.executor.model.free_bytes", lambda device: free["bytes"])
    executor, _ = make_executor(num_blocks=2**16)
    own = executor._cache.storage.nbytes
    assert own > 2**27
    assert executor.free_memory() == 2**30, "as long as its pages are untouched the system still counts them as free"
    free["bytes"] -= own
    assert executor.free_memory() == 2**30
    free["bytes"] -= 2**28
    assert executor.free_memory() == 2**30 - 2**28, "what somebody else took is gone"


def test_rooms_share_the_weights_and_nothing_else():
    loaded, prompts = loaded_tiny("llama"), tiny_prompts(6, seed=40)
    rooms = [make_engine(loaded, block_size=4, num_blocks=100, use_cuda_graph=i > 0, use_async_batching=i > 1) for i in range(3)]
    ids = [
        [room.submit(prompt, SamplingParams(max_new_tokens=10))[0] for prompt in prompts[2 * i : 2 * i + 2]]
        for i, room in enumerate(rooms)
    ]
    while any(room.has_work for room in rooms):
        for room in rooms:
            room.step()
    expected = reference(loaded, prompts, 10)
    assert [outputs(room, names) for room, names in zip(rooms, ids, strict=True)] == [expected[0:2], expected[2:4], expected[4:6]]
    for room in rooms:
        room.close()


def test_the_model_can_still_generate_by_itself_after_serving():
    loaded, prompts = loaded_tiny("gemma3"), tiny_prompts(2, seed=41)
    before = reference(loaded, prompts, 7)
    run(make_engine(loaded, block_size=4, num_blocks=100), prompts, SamplingParams(max_new_tokens=7))
    after = [
        loaded.model.generate(torch.tensor([prompt]), max_new_tokens=7, do_sample=False, pad_token_id=0)[
            0, len(prompt) :
        ].tolist()
        for prompt in prompts
    ]
    assert after == before


def test_an_asynchronous_step_is_launched_while_the_one_before_is_still_computing():
    """The forward pass is held until the next step has been launched: with a lane that waited, this would never end. The
    second step needs the first one's token, which no host has seen."""
    executor, layout = make_executor(config=ASYNC)
    request, gate, threads = one_request([5, 6, 7, 8], layout), threading.Event(), []
    forward = executor._forward

    class Held:
        name = "held"

        def __call__(self, batch, cache):
            threads.append(threading.current_thread())
            assert gate.wait(20)
            return forward(batch, cache)

    executor._forward = Held()
    first = executor.launch(StepPlan(1, [Slice(request, 0, 4, PREFILL, True)]))
    second = executor.launch(StepPlan(2, [Slice(request, 4, 1, DECODE, True)]))
    assert not first.job.done.is_set()
    gate.set()
    tokens = executor.collect(first).tokens + executor.collect(second).tokens
    assert tokens == reference(loaded_tiny("llama"), [request.tokens], 2)[0]
    assert threading.main_thread() not in threads and len(set(threads)) == 1
    executor.close()


def test_reported_intervals_are_in_order_and_the_overlap_is_the_one_that_happened():
    executor, layout = make_executor(config=ASYNC)
    request = one_request([5, 6, 7, 8], layout)
    handles = [
        executor.launch(StepPlan(1, [Slice(request, 0, 4, PREFILL, True)])),
        executor.launch(StepPlan(2, [Slice(request, 4, 1, DECODE, True)])),
    ]
    first, second = (executor.collect(handle) for handle in handles)
    for result in (first, second):
        assert result.prepare[0] <= result.prepare[1] and result.device[0] <= result.device[1]
        assert result.prepare[1] <= result.device[1]
    assert first.prepare[1] <= second.prepare[0]
    assert first.device[1] <= second.device[0], "one device computes one step at a time"
    executor.close()


def test_what_fails_in_the_worker_is_raised_where_it_is_collected_and_the_worker_lives_on():
    executor, layout = make_executor(config=ASYNC)
    request, forward = one_request([5, 6, 7], layout), executor._forward

    def broken(batch, cache):
        raise RuntimeError("the device is unwell")

    broken.name = "broken"
    executor._forward = broken
    handle = executor.launch(StepPlan(1, [Slice(request, 0, 3, PREFILL, True)]))
    with pytest.raises(RuntimeError, match="unwell"):
        executor.collect(handle)
    executor._forward = forward
    assert len(executor.collect(executor.launch(StepPlan(2, [Slice(request, 0, 3, PREFILL, True)]))).tokens) == 1
    executor.close()


def test_a_collected_step_is_gone_at_once():
    """Nothing of it waits for the garbage collector, and no step keeps the one before it alive."""
    executor, layout = make_executor(config=ASYNC)
    request, seen = one_request([5, 6, 7], layout), []
    gc.disable()
    try:
        handle = executor.launch(StepPlan(1, [Slice(request, 0, 3, PREFILL, True)]))
        for step in range(2, 6):
            following = executor.launch(StepPlan(step, [Slice(request, len(request.tokens), 1, DECODE, True)]))
            seen.append(weakref.ref(handle.job))
            request.tokens += executor.collect(handle).tokens
            handle = following
        del following
        assert [reference() for reference in seen] == [None] * 4
    finally:
        gc.enable()
        executor.collect(handle)
        executor.close()


def test_one_new_token_with_async_makes_no_useless_step():
    engine = make_engine(loaded_tiny("llama"), block_size=4, num_blocks=100, use_cuda_graph=True, use_async_batching=True)
    ids = [engine.submit(prompt, SamplingParams(max_new_tokens=1))[0] for prompt in tiny_prompts(3, longest=10, seed=42)]
    finish(engine)
    assert [len(text) for text in outputs(engine, ids)] == [1, 1, 1]
    assert engine.snapshot()["state"]["counters"]["steps"] == 1
    engine.close()


def test_an_idle_async_engine_waits_for_its_first_request():
    engine = make_engine(loaded_tiny("llama"), block_size=4, num_blocks=100, use_cuda_graph=True, use_async_batching=True)
    assert [engine.step() for _ in range(3)] == [None] * 3
    prompts = tiny_prompts(2, seed=43)
    assert run(engine, prompts, SamplingParams(max_new_tokens=5)) == reference(loaded_tiny("llama"), prompts, 5)
    assert engine.step() is None
    assert run(engine, prompts, SamplingParams(max_new_tokens=5)) == reference(loaded_tiny("llama"), prompts, 5)
    engine.close()


def test_padding_rows_leave_every_real_slot_alone():
    """Blocks of nobody keep their content through padded steps; so does the padding-read block."""
    executor, layout = make_executor("gemma3", config=ASYNC)
    request = one_request([5, 6, 7, 8, 9], layout)
    owned = {block for table in request.tables for block in table}
    others = [block for block in range(layout.num_blocks) if block not in owned] + [layout.padding_read]
    storage = executor._cache.storage
    storage[:, :, others] = 0.125
    executor.collect(executor.launch(StepPlan(1, [Slice(request, 0, 5, PREFILL, True)])))
    request.tokens.append(11)
    for step in range(2, 6):
        result = executor.collect(executor.launch(StepPlan(step, [Slice(request, len(request.tokens) - 1, 1, DECODE, True)])))
        assert result.graph.q_padding == 3
        request.tokens.append(11)
    assert bool((storage[:, :, others] == 0.125).all())
    executor.close()


def test_an_attention_backend_that_cannot_work_here_is_replaced_and_a_sentence_says_so():
    for name in ("flash", "varlen"):
        executor, _ = make_executor(config=CONFIG.replaced({"attention_backend": name}))
        assert executor.info.backend not in ("flash", "varlen")
        assert any(f"The attention backend {name} is not used" in note and "CUDA" in note for note in executor.info.notes)
