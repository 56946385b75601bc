"""Sizing: the memory equation holds with equality up to one block, and explicit values are honoured."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.layer_groups import group_layers
from engine.cache.sizing import plan_layout
from engine.config import EngineConfig
from engine.errors import ConfigRefused
from engine.executor.catalog import find_model

GIB = 2**30


@settings(deadline=None)      # the clock of a crowded machine says nothing about the plan
@given(free=st.integers(80 * GIB, 200 * GIB), block_size=st.sampled_from([4, 16, 256]), percent=st.floats(0.1, 0.95),
       graph=st.booleans(), tokens=st.sampled_from([64, 2048]))
def test_the_plan_fits_the_budget_and_one_more_block_would_not(free, block_size, percent, graph, tokens):
    spec = find_model("llama-3.1-8b")
    config = EngineConfig(block_size=block_size, max_memory_percent=percent, max_batch_tokens=tokens, use_cuda_graph=graph,
                          use_async_batching=graph, max_requests_per_batch=4096)
    layout, sizing = plan_layout(spec, config, free)
    used = sizing.kv_bytes + sizing.index_bytes + sizing.activation_bytes + sizing.logit_bytes + sizing.row_bytes
    per_block = (sizing.kv_bytes + sizing.index_bytes) // layout.num_blocks
    assert used <= sizing.budget_bytes
    assert sizing.limited_by == "memory"
    assert used + per_block > sizing.budget_bytes


def test_async_batching_pays_for_its_second_set_of_buffers():
    spec = find_model("llama-3.1-8b")
    one = plan_layout(spec, EngineConfig(use_cuda_graph=True), 10 * GIB)[1]
    two = plan_layout(spec, EngineConfig(use_cuda_graph=True, use_async_batching=True), 10 * GIB)[1]
    assert two.logit_bytes == 2 * one.logit_bytes and two.row_bytes == 2 * one.row_bytes
    assert two.kv_bytes < one.kv_bytes or one.limited_by == "usable"


def test_explicit_blocks_are_honoured_whatever_is_free():
    layout, sizing = plan_layout(find_model("smollm2-135m"), EngineConfig(num_blocks=7, block_size=4), 1)
    assert (layout.num_blocks, layout.block_size, sizing.limited_by) == (7, 4, "explicit")
    assert layout.padding_read == 7 and layout.padding_write == 8


def test_too_little_memory_is_refused_with_what_to_change():
    with pytest.raises(ConfigRefused, match="lower max_batch_tokens"):
        plan_layout(find_model("llama-3.1-8b"), EngineConfig(), 1000)


def test_no_more_is_planned_than_all_requests_could_ever_use():
    layout, sizing = plan_layout(find_model("smollm2-135m"), EngineConfig(max_requests_per_batch=2), 500 * GIB)
    spec = find_model("smollm2-135m")
    assert sizing.limited_by == "usable"
    assert layout.num_blocks * layout.block_size == 2 * spec.max_position


def test_groups_have_equal_size_so_that_all_blocks_weigh_the_same():
    groups = group_layers(find_model("gemma-2-9b"))
    assert len({len(group.layers) for group in groups}) == 1
    assert sorted(layer for group in groups for layer in group.layers) == list(range(42))
    assert {group.window for group in groups} == {None, 4096}


def test_a_sliding_group_never_needs_more_than_its_window():
    groups = group_layers(find_model("mistral-7b-v0.1"))
    assert groups[0].blocks_needed(10_000_000, 16) == 4096 // 16
