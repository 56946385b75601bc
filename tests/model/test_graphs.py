"""The graph cache: what is recorded, found again, thrown away, and what happens when a device cannot record."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from engine.executor.batch_buffers import BatchBuffers, BatchShape, GroupShape
from engine.executor.graphs import CpuStep, CudaStep, GraphCache, RecordedStep, describe
from engine.sampling_params import SamplingParams
from tests.model.helpers import finish, loaded_tiny, make_engine, outputs, reference, run, tiny_prompts

CPU = torch.device("cpu")
SHAPE = BatchShape(num_tokens=16, num_decode=16, num_prefill=0, max_query=0, num_samples=16, groups=(GroupShape(4, 64),))


class Recording(RecordedStep):
    """Stands for a device that can record: writes down what was asked of it."""

    def __init__(self, shape: BatchShape, log: list, fails: bool = False) -> None:
        self.buffers = (BatchBuffers(shape, (None,), CPU), BatchBuffers(shape, (None,), CPU))
        self.shape, self.log, self.fails = shape, log, fails

    def first_run(self, buffers, carried, run):
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.log.append(("capture", self.shape))
        return run(buffers.batch)

    def replay(self, buffers, carried, run):
        self.log.append(("replay", self.shape))
        return run(buffers.batch)


def turn(cache: GraphCache, shape: BatchShape, pair: int = 0) -> str:
    step = cache.find(shape)
    report = cache.report(shape, 0, 0)
    cache.run(step, step.buffers[pair], None, report, lambda batch: torch.zeros(1))
    return report.action


def test_a_shape_is_captured_once_and_replayed_from_then_on():
    log: list = []
    cache = GraphCache("cuda", lambda shape: Recording(shape, log))
    assert [turn(cache, SHAPE, step % 2) for step in range(4)] == ["capture", "replay", "replay", "replay"]
    assert log == [("capture", SHAPE)] + [("replay", SHAPE)] * 3


VARIANTS = {"num_tokens": 32, "num_decode": 15, "num_prefill": 1, "max_query": 8, "num_samples": 8,
            "groups": (dataclasses.replace(SHAPE.groups[0], width=5),)}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_number_baked_into_a_kernel_is_part_of_the_key(name):
    cache = GraphCache("cuda", lambda shape: Recording(shape, []))
    assert turn(cache, SHAPE) == "capture"
    assert turn(cache, dataclasses.replace(SHAPE, **{name: VARIANTS[name]})) == "capture"
    assert {field.name for field in dataclasses.fields(BatchShape)} == set(VARIANTS)
    for field in dataclasses.fields(GroupShape):
        other = dataclasses.replace(SHAPE.groups[0], **{field.name: 99})
        assert dataclasses.replace(SHAPE, groups=(other,)) != SHAPE


def test_the_least_recently_used_shape_leaves_and_is_captured_anew():
    cache = GraphCache("cuda", lambda shape: Recording(shape, []), capacity=2)
    first, second, third = (dataclasses.replace(SHAPE, num_samples=count) for count in (1, 2, 3))
    assert [turn(cache, shape) for shape in (first, second, first, third, first, second)] == [
        "capture", "capture", "replay", "capture", "replay", "capture"]
    assert len(cache) == 2


def test_a_device_that_cannot_record_runs_eagerly_and_says_why():
    cache = GraphCache("cuda", lambda shape: Recording(shape, [], fails=True))
    step, report = cache.find(SHAPE), cache.report(SHAPE, 0, 0)
    result = cache.run(step, step.buffers[0], None, report, lambda batch: torch.ones(1))
    assert result.item() == 1
    assert report.action == "eager" and "capturing" in report.why
    later = cache.report(SHAPE, 3, 5)
    assert (later.action, later.why, later.q_padding, later.kv_padding) == ("eager", report.why, 3, 5)


def test_cpu_buffers_of_a_shape_never_move_and_its_two_pairs_are_apart():
    cache = GraphCache("cpu", lambda shape: CpuStep(shape, (None,), CPU))
    one, again = cache.find(SHAPE), cache.find(SHAPE)
    assert one is again
    addresses = {buffers.batch.input_ids.data_ptr() for buffers in one.buffers}
    assert len(addresses) == 2
    one.buffers[0].host["input_ids"][:] = 7
    assert one.buffers[0].batch.input_ids.tolist() == [7] * 16
    assert one.buffers[1].batch.input_ids.tolist() == [0] * 16


def test_a_key_can_be_read():
    mixed = BatchShape(64, 8, 2, 48, 16, (GroupShape(4, 1024, 0, 0),))
    assert (describe(SHAPE), describe(mixed)) == ("q16 kv64", "q64 kv1024 p2×48 s16")


class Emulated(CudaStep):
    """The way a CUDA step handles its memory, with a graph that is the forward pass itself run again into the same tensor."""

    def first_run(self, buffers, carried, run):
        self._load(buffers, carried)
        self._logits = run(self._static.batch)
        return self._logits

    def replay(self, buffers, carried, run):
        self._graph = SimpleNamespace(replay=lambda: self._logits.copy_(run(self._static.batch)))
        return super().replay(buffers, carried, run)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_graph_over_a_third_set_of_buffers_gives_the_same_tokens(kind, ahead):
    """Static inputs, filled from two pairs in turn and from the step before, as on CUDA."""
    loaded, prompts, params = loaded_tiny(kind), tiny_prompts(10, seed=34), SamplingParams(max_new_tokens=16)
    engine = make_engine(loaded, block_size=4, num_blocks=300, max_batch_tokens=24, use_cuda_graph=True, use_async_batching=ahead,
                         q_padding_interval_size=8, kv_padding_interval_size=16)
    executor = engine.executor
    executor._graphs._make = lambda shape: Emulated(shape, executor._builder.windows, CPU, (0, 0))
    assert run(engine, prompts, params) == reference(loaded, prompts, 16)
    counters = engine.snapshot()["state"]["counters"]
    assert counters["replays"] > 0 and counters["captures"] > 0
    engine.close()


def test_five_identical_prompts_give_five_identical_outputs_equal_to_eager():
    loaded, prompt = loaded_tiny("llama"), tiny_prompts(2, seed=30)[1]
    params = SamplingParams(max_new_tokens=24)
    knobs = {"block_size": 4, "num_blocks": 200, "allow_block_sharing": False}
    eager = run(make_engine(loaded, **knobs), [prompt], params)[0]
    graphs = run(
        make_engine(loaded, **knobs, use_cuda_graph=True, q_padding_interval_size=8, kv_padding_interval_size=16),
        [prompt] * 5,
        params,
    )
    assert graphs == [eager] * 5


def test_equal_padded_sizes_with_another_longest_context_give_the_right_tokens():
    """Two batches of 8 padded rows whose longest contexts fall into different intervals, in turn."""
    loaded = loaded_tiny("llama")
    short, long = tiny_prompts(2, longest=6, seed=31)[1], tiny_prompts(2, longest=60, seed=32)[1]
    params = SamplingParams(max_new_tokens=12)
    plain = make_engine(loaded, block_size=4, num_blocks=100)
    graphs = make_engine(
        loaded, block_size=4, num_blocks=100, use_cuda_graph=True, q_padding_interval_size=8, kv_padding_interval_size=16
    )
    for prompt in (short, long, short, long):
        assert run(graphs, [prompt], params) == run(plain, [prompt], params)


def test_events_of_a_cpu_never_speak_of_cuda_and_count_their_padding():
    engine = make_engine(loaded_tiny("llama"), block_size=4, num_blocks=100, use_cuda_graph=True, q_padding_interval_size=8)
    ids = [engine.submit(prompt, SamplingParams(max_new_tokens=6))[0] for prompt in tiny_prompts(3, seed=33)]
    reports = []
    while engine.has_work:
        event = engine.step()
        reports.append(event["graph"])
    assert {report["backend"] for report in reports} == {"cpu"}
    assert {report["action"] for report in reports} == {"capture", "replay"}
    assert [report["q_padding"] for report in reports[-2:]] == [5, 5]
    assert outputs(engine, ids)


def test_without_graphs_every_step_is_eager_and_says_so():
    engine = make_engine(loaded_tiny("llama"), block_size=4, num_blocks=100)
    engine.submit([5, 6, 7], SamplingParams(max_new_tokens=2))
    report = engine.step()["graph"]
    assert (report["action"], report["q_padding"], report["kv_padding"]) == ("eager", 0, 0)
    assert "switched off" in report["why"]
    finish(engine)
