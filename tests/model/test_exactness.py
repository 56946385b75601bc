"""Greedy output in fp32 is, token by token, what transformers' ``generate`` gives, however the work was cut up and packed."""

from __future__ import annotations

import copy

import pytest
import torch

from engine.sampling_params import SamplingParams
from tests.model.helpers import finish, loaded_gpt_oss, loaded_tiny, make_engine, outputs, reference, run, tiny_prompts, untouched
from tests.tiny_models import KINDS

GREEDY = SamplingParams(max_new_tokens=20)


#: (kind, block size, tokens a step): everything for one full and one hybrid model, a diagonal for the others.
GEOMETRIES = [(kind, block_size, tokens) for kind in sorted(KINDS) for block_size in (4, 16, 256) for tokens in (8, 64, 512)
              if kind in ("llama", "gemma3") or (block_size, tokens) in ((4, 64), (16, 8), (256, 512))]


@pytest.mark.parametrize(("kind", "block_size", "max_batch_tokens"), GEOMETRIES)
def test_24_prompts_together_equal_generate(kind, block_size, max_batch_tokens):
    loaded, prompts = loaded_tiny(kind), tiny_prompts(24)
    engine = make_engine(loaded, block_size=block_size, max_batch_tokens=max_batch_tokens, max_requests_per_batch=24,
                         num_blocks=24 * 64 // block_size + 200)
    assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)


@pytest.mark.parametrize("backend", ["sdpa", "native"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_attention_backend_of_a_cpu_equals_generate(kind, backend):
    loaded, prompts = loaded_tiny(kind, wide=True), tiny_prompts(8, seed=11)
    engine = make_engine(loaded, attention_backend=backend, block_size=8, num_blocks=300, max_batch_tokens=32)
    if engine.executor.info.backend != backend:
        pytest.skip("; ".join(engine.executor.info.notes))
    assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)


@pytest.mark.parametrize("scheduler", ["fifo", "prefill_first", "static"])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("mode", ["graphs", "async"])
def test_graphs_and_async_change_nothing_under_any_scheduler(kind, scheduler, mode):
    loaded, prompts = loaded_tiny(kind), tiny_prompts(12, seed=1)
    engine = make_engine(
        loaded,
        scheduler_type=scheduler,
        block_size=8,
        num_blocks=300,
        max_batch_tokens=32,
        max_requests_per_batch=6,
        use_cuda_graph=True,
        use_async_batching=mode == "async",
        q_padding_interval_size=8,
        kv_padding_interval_size=32,
    )
    assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)
    counters = engine.snapshot()["state"]["counters"]
    assert counters["captures"] > 0
    assert counters["replays"] > 0
    assert counters["padding_tokens"] > 0
    engine.close()


@pytest.mark.parametrize("mode", ["plain", "graphs", "async"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_offload_soft_reset_and_restore_keep_the_output(kind, mode):
    """The cache holds a fraction of the requests and the swap pool a fraction of those that are pushed out."""
    loaded, prompts = loaded_tiny(kind), tiny_prompts(10, longest=24, seed=2)
    layout_block = make_engine(loaded, block_size=4, num_blocks=64).cache.layout.block_bytes
    engine = make_engine(loaded, block_size=4, num_blocks=36 if kind == "gemma2" else 22, max_batch_tokens=24, safety_margin=0.0,
                         cpu_offload_space=9.5 * layout_block / 2**30, use_cuda_graph=mode != "plain",
                         use_async_batching=mode == "async", q_padding_interval_size=4, kv_padding_interval_size=16)
    params = SamplingParams(max_new_tokens=40)
    assert run(engine, prompts, params) == reference(loaded, prompts, 40)
    counters = engine.snapshot()["state"]["counters"]
    assert min(counters["offloads"], counters["soft_resets"], counters["restores"]) > 0, counters
    assert counters["swap_bytes_out"] > 0
    engine.close()


@pytest.mark.parametrize("sharing", [True, False])
def test_shared_prefixes_give_what_cold_runs_give(sharing):
    loaded = loaded_tiny("llama")
    system = tiny_prompts(2, longest=32, seed=3)[1]
    prompts = [system + tail for tail in tiny_prompts(12, longest=9, seed=4)] + [system] * 3
    engine = make_engine(
        loaded, block_size=4, num_blocks=200, max_batch_tokens=40, max_requests_per_batch=4, allow_block_sharing=sharing
    )
    assert run(engine, prompts, GREEDY) == reference(loaded, prompts, 20)
    hits = engine.snapshot()["state"]["counters"]["prefix_hit_tokens"]
    assert hits > 100 if sharing else hits == 0


@pytest.mark.parametrize("block_size", [4, 16])
def test_forked_samples_share_the_prompt_and_still_equal_generate(block_size):
    """Greedy siblings must all say what one request says, though each writes into a copy of the shared last block."""
    loaded, prompts = loaded_tiny("qwen3"), tiny_prompts(5, seed=5)
    engine = make_engine(loaded, block_size=block_size, num_blocks=400, max_batch_tokens=48)
    ids = [engine.submit(prompt, SamplingParams(max_new_tokens=12, n=4)) for prompt in prompts]
    finish(engine)
    for siblings, expected in zip(ids, reference(loaded, prompts, 12), strict=True):
        assert outputs(engine, siblings) == [expected] * 4
    assert engine.snapshot()["state"]["counters"]["copies"] > 0


@pytest.mark.parametrize("kind", ["gemma3", "llama"])
def test_turning_knobs_in_the_middle_keeps_the_output(kind):
    loaded, prompts = loaded_tiny(kind), tiny_prompts(10, seed=6)
    engine = make_engine(loaded, block_size=8, num_blocks=200, max_batch_tokens=16)
    ids = [engine.submit(prompt, SamplingParams(max_new_tokens=60))[0] for prompt in prompts]
    changes = [
        {"max_batch_tokens": 64},
        {"use_cuda_graph": True, "q_padding_interval_size": 8},
        {"block_size": 4, "num_blocks": 300},
        {"use_async_batching": True},
        {"scheduler_type": "prefill_first"},
        {"kv_padding_interval_size": 64, "max_batch_tokens": 9},
        {"use_async_batching": False, "use_cuda_graph": False},
        {"block_size": 16, "num_blocks": 100},
        {"allow_block_sharing": False},
    ]
    for change in changes:
        for _ in range(4):
            engine.step()
        engine.configure(change)
    assert engine.has_work, "the changes came too late to prove anything"
    finish(engine)
    assert outputs(engine, ids) == reference(loaded, prompts, 60)
    engine.close()


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gemma3"])
@pytest.mark.parametrize("block_size", [4, 5, 16])
def test_a_sliding_window_wraps_around_many_times(kind, block_size):
    """Window 8, prompts shorter and longer than it, outputs of nine windows; slices of three windows at once as well."""
    loaded, prompts = loaded_tiny(kind), [[5], [7, 9, 11], *tiny_prompts(3, longest=60, seed=7)]
    for max_batch_tokens in (5, 24):
        engine = make_engine(loaded, block_size=block_size, num_blocks=400, max_batch_tokens=max_batch_tokens)
        assert run(engine, prompts, SamplingParams(max_new_tokens=72)) == reference(loaded, prompts, 72)


@pytest.mark.parametrize("mode", ["plain", "async"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_finished_static_slots_compute_padding_without_touching_anybody(kind, mode):
    """One long and many short outputs: the short ones' slots are computed as padding for a long time."""
    loaded, prompts = loaded_tiny(kind), tiny_prompts(8, seed=8)
    engine = make_engine(loaded, scheduler_type="static", block_size=4, num_blocks=300, max_requests_per_batch=4,
                         use_cuda_graph=mode == "async", use_async_batching=mode == "async", q_padding_interval_size=8)
    lengths = [3, 30, 2, 5, 1, 4, 25, 2]
    texts = run(engine, prompts, [SamplingParams(max_new_tokens=length) for length in lengths])
    assert texts == [reference(loaded, [prompt], length)[0] for prompt, length in zip(prompts, lengths, strict=True)]
    engine.close()


@pytest.mark.parametrize("outside", [True, False])
def test_inference_mode_around_the_engine_makes_no_difference(outside):
    loaded, prompts = loaded_tiny("llama"), tiny_prompts(4, seed=9)
    engine = make_engine(loaded, block_size=4, num_blocks=200, use_cuda_graph=True, use_async_batching=True)
    first, second = prompts[:2], prompts[2:]
    with torch.inference_mode(outside):
        early = run(engine, first, GREEDY)
    with torch.inference_mode(not outside):
        late = run(engine, second, GREEDY)
    assert early + late == reference(loaded, prompts, 20)
    engine.close()


def test_the_caps_of_the_tiny_gemma_matter():
    """Else the tests above would not notice an attention that forgets them."""
    loaded, prompts = loaded_tiny("gemma2"), tiny_prompts(6, seed=10)
    capped = reference(loaded, prompts, 20)
    plain = copy.deepcopy(loaded.model)
    plain.set_attn_implementation("eager")
    for module in plain.modules():
        if hasattr(module, "attn_logit_softcapping"):
            module.attn_logit_softcapping = None
    assert [plain.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0)[0, len(prompt):].tolist()
            for prompt in prompts] != capped


def test_attention_sinks_take_their_share():
    loaded, prompts = loaded_gpt_oss(), tiny_prompts(10, seed=12)
    engine = make_engine(loaded, block_size=8, num_blocks=300, max_batch_tokens=24)
    assert engine.executor.info.backend == "sdpa"
    answers = run(engine, prompts, GREEDY)
    assert answers == reference(loaded, prompts, 20)
    for name, parameter in untouched(loaded).named_parameters():
        if name.endswith("sinks"):
            parameter.fill_(-1e4)
    without = untouched(loaded).generate(torch.tensor([prompts[1]]), max_new_tokens=20, do_sample=False, pad_token_id=0)
    assert without[0, len(prompts[1]):].tolist() != answers[1], "or the test would not notice sinks that are forgotten"


def test_the_default_model_equals_generate(default_model):
    """SmolLM2 itself, with its real texts, chunked and packed."""
    tokenizer = default_model.tokenizer
    texts = ["The capital of France is", "def fibonacci(n):", "Once upon a time, in a village by the sea,", "1, 2, 3, 4,",
             "Water boils at", "Dear Sir or Madam, I am writing to you"]
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    engine = make_engine(default_model, block_size=16, num_blocks=64, max_batch_tokens=16)
    assert run(engine, prompts, SamplingParams(max_new_tokens=16)) == reference(default_model, prompts, 16)
