"""The fused CPU decoder is the model it replaces: same tokens, same rounding, and no other request changes a result."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from engine.bench.peer_workloads import make_workload
from engine.cache.layer_groups import FULL, CacheLayout, LayerGroup
from engine.model import forward as forward_module
from engine.model import native_library
from engine.model.attention import choose_backend
from engine.model.attention.base import Place
from engine.model.attention.native import NativeBackend
from engine.model.attention.sdpa import SdpaBackend
from engine.model.attention.self_test import disagreement
from engine.model.forward import fused_decoder, make_forward
from engine.model.fused_decoder import FusedDecoder
from engine.model.packed_batch import GroupIndices, PackedBatch, PagedKVCache
from engine.model.paged_forward import PagedForward
from engine.sampling_params import SamplingParams
from tests.model.helpers import loaded_tiny, make_engine, reference, run, tiny_prompts, untouched
from tests.tiny_models import tiny_model

KNOWN = ("llama", "qwen2", "qwen3")
SIZE = 8        # block size of the small caches here


def small_cache(model, blocks: int = 64) -> PagedKVCache:
    config = model.config
    layout = CacheLayout((LayerGroup(0, FULL, tuple(range(config.num_hidden_layers))),), blocks, SIZE, 0)
    head_dim = model.model.layers[0].self_attn.head_dim
    return PagedKVCache(layout, config.num_key_value_heads, head_dim, model.dtype, torch.device("cpu"))


def make_batch(rows: list[tuple[list[int], int, list[int]]], every_row: bool = False) -> PackedBatch:
    """``rows``: (block table, first position, token ids), decode rows first. Samples each row's last token, or all tokens."""
    ends = [start + len(ids) for _, start, ids in rows]
    starts = torch.tensor([0, *[len(ids) for _, _, ids in rows]]).cumsum(0)
    width = max(map(len, (table for table, _, _ in rows)))
    tables = torch.tensor([table + [0] * (width - len(table)) for table, _, _ in rows], dtype=torch.int32)
    slots = [table[p // SIZE] * SIZE + p % SIZE for table, start, ids in rows for p in range(start, start + len(ids))]
    positions = [p for _, start, ids in rows for p in range(start, start + len(ids))]
    longest = max((len(ids) for _, _, ids in rows if len(ids) > 1), default=0)
    return PackedBatch(
        torch.tensor([token for _, _, ids in rows for token in ids]), torch.tensor(positions), starts.to(torch.int32),
        sum(len(ids) == 1 for _, _, ids in rows), longest,
        [GroupIndices(None, tables, torch.tensor(slots), torch.tensor(ends, dtype=torch.int32), max(ends))],
        torch.arange(len(positions)) if every_row else starts[1:] - 1)


@pytest.fixture(scope="module")
def llama():
    return loaded_tiny("llama", wide=True).model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KNOWN)
def test_known_models_are_served_by_the_fused_decoder(kind, dtype):
    loaded = loaded_tiny(kind, dtype=dtype, wide=True)
    made, backend, notes = make_forward(loaded.model, loaded.spec, "auto", small_cache(loaded.model))
    assert (type(made), backend, notes) == (FusedDecoder, "native", [])


@pytest.mark.parametrize("kind", KNOWN)
def test_24_fp32_prompts_equal_generate_token_for_token(kind):
    loaded, prompts = loaded_tiny(kind, wide=True), tiny_prompts(24, longest=90, seed=5)
    engine = make_engine(loaded, block_size=SIZE, num_blocks=600, max_batch_tokens=50, max_requests_per_batch=24)
    assert run(engine, prompts, SamplingParams(max_new_tokens=20)) == reference(loaded, prompts, 20)


def test_24_fp32_prompts_of_the_default_model_equal_generate(default_model):
    prompts = [item.prompt for item in make_workload("c", default_model.tokenizer)[:24]]
    engine = make_engine(default_model, block_size=16, num_blocks=200, max_requests_per_batch=24)
    assert engine.executor.info.backend == "native"
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        out = untouched(default_model).generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert run(engine, prompts, SamplingParams(max_new_tokens=8, ignore_eos=True)) == out[:, width:].tolist()


def test_bf16_tokens_agree_with_the_generic_path_on_the_benchmark_prompts(default_model_bf16):
    """Each fused token is compared with the generic path's choice after the same text, so one early difference does not count
    again for every token behind it."""
    requests = make_workload("c", default_model_bf16.tokenizer)[::2]
    engine = make_engine(default_model_bf16, block_size=16, num_blocks=200, max_requests_per_batch=32)
    assert engine.executor.info.backend == "native"
    fused = run(engine, [item.prompt for item in requests], SamplingParams(max_new_tokens=32, ignore_eos=True))
    generic, cache = PagedForward(default_model_bf16.model, SdpaBackend()), small_cache(default_model_bf16.model)
    same = total = 0
    for item, tokens in zip(requests, fused):
        text = item.prompt + tokens
        logits = generic(make_batch([(list(range(-(-len(text) // SIZE))), 0, text[:-1])], every_row=True), cache)
        same += (logits.argmax(-1)[len(item.prompt) - 1:] == torch.tensor(tokens)).sum().item()
        total += len(tokens)
    assert same / total >= 0.95, f"{same} of {total} tokens agree"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neighbours_in_the_batch_do_not_change_a_single_bit(dtype):
    model = loaded_tiny("llama", dtype=dtype, wide=True).model
    decoder, ids = fused_decoder(model), torch.arange(3, 103).tolist()
    alone, crowd = small_cache(model), small_cache(model)
    expected = decoder(make_batch([([4, 9, 2], 0, ids[:20])]), alone)
    others = [([20 + i], 3, [5 + i]) for i in range(6)]
    together = decoder(make_batch([*others, ([30, 31, 32, 33, 34, 35, 36, 37, 38], 0, ids[30:100]), ([4, 9, 2], 0, ids[:20])]), crowd)
    assert torch.equal(together[-1], expected[0])


def test_cutting_a_prompt_into_slices_does_not_change_a_single_bit(llama):
    decoder, ids, table = fused_decoder(llama), torch.arange(3, 103).tolist(), list(range(13, 0, -1))
    whole = decoder(make_batch([(table, 0, ids)]), small_cache(llama))
    cache = small_cache(llama)
    for start, end in ((0, 1), (1, 34), (34, 99), (99, 100)):
        sliced = decoder(make_batch([(table, start, ids[start:end])]), cache)
    assert torch.equal(sliced, whole)


@pytest.mark.parametrize("vocabulary", [128, 1003])
def test_greedy_is_the_first_highest_logit(vocabulary):
    model = tiny_model("llama", vocab_size=vocabulary, head_dim=32, tie_word_embeddings=False)
    weight = model.lm_head.weight
    weight[vocabulary // 2:] = weight[:vocabulary - vocabulary // 2].clone()      # nearly every logit comes twice
    decoder, batch = FusedDecoder(model), make_batch([([0, 1, 2, 3, 4, 5], 0, list(range(3, 48)))], every_row=True)
    logits = decoder(batch, small_cache(model))
    first = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1)
    assert torch.equal(decoder.greedy(batch, small_cache(model)), first)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_nothing(llama, threads):
    decoder = FusedDecoder(llama)
    batch = make_batch([([30 + i], 5, [7 + i]) for i in range(11)] + [([1, 2, 3, 4], 0, list(range(3, 33)))])
    expected = decoder(batch, small_cache(llama))
    decoder._model.threads = threads
    assert torch.equal(decoder(batch, small_cache(llama)), expected)


def test_memory_of_unwritten_slots_never_reaches_a_result(llama):
    """A block is reused without being wiped; what another request left in it, even NaN, must not matter."""
    decoder, dirty = fused_decoder(llama), small_cache(llama)
    dirty.storage.fill_(float("nan"))
    batch = make_batch([([3, 4], 0, list(range(3, 14)))])
    assert torch.equal(decoder(batch, dirty), decoder(batch, small_cache(llama)))


def test_one_decoder_serves_the_caches_of_several_rooms_in_turn(llama):
    decoder, first, second = fused_decoder(llama), small_cache(llama), small_cache(llama, blocks=7)
    a, b = make_batch([([1, 2], 0, list(range(3, 13)))]), make_batch([([1, 2], 0, list(range(50, 60)))])
    decoder(a, first)
    decoder(b, second)
    step = make_batch([([1, 2], 10, [9])])
    continued = decoder(step, first)
    only = small_cache(llama)
    decoder(a, only)
    assert torch.equal(continued, decoder(step, only))


@pytest.mark.parametrize(("kind", "overrides", "word"), [
    ("gpt_neox", {}, "does not know"), ("gemma3", {}, "does not know"), ("llama", {"head_dim": 16}, "multiple of 32"),
    ("llama", {"head_dim": 32, "mlp_bias": True}, "bias"), ("llama", {"head_dim": 32, "hidden_act": "gelu"}, "SiLU"),
    ("mistral", {"head_dim": 32}, "sliding"),
    ("llama", {"head_dim": 32, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rotary")])
def test_what_the_fused_decoder_does_not_do_it_declines(kind, overrides, word):
    assert word in FusedDecoder.why_not(tiny_model(kind, **overrides))


def test_a_decoder_that_disagrees_with_the_modules_is_not_used():
    model = tiny_model("llama", head_dim=32)
    model.model.layers[1].self_attn.scaling = 0.5       # known when the first layer is asked for its scale, not followed
    assert "logits differ" in fused_decoder(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 32), (9, 3, 64), (32, 2, 128), (7, 1, 96)])
@pytest.mark.parametrize("block_size", [4, 5, 33, 256])
def test_native_attention_equals_the_reference(heads, kv_heads, head_dim, block_size, dtype):
    place = Place(torch.device("cpu"), dtype, heads, kv_heads, head_dim, block_size)
    assert disagreement(NativeBackend, place) is None


def test_without_a_compiler_the_reference_serves_and_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(forward_module, "_fused", type(forward_module._fused)())
    native_library.load_library.cache_clear()
    try:
        loaded = loaded_tiny("qwen2", wide=True)
        made, backend, notes = make_forward(loaded.model, loaded.spec, "auto", small_cache(loaded.model))
        assert (type(made), backend) == (PagedForward, "sdpa")
        assert "no C++ compiler" in notes[0]
        _, notes = choose_backend("native", Place(torch.device("cpu"), torch.float32, 4, 2, 32, 8))
        assert "no C++ compiler" in notes[0]
        engine = make_engine(loaded, block_size=SIZE, num_blocks=100)
        assert "no C++ compiler" in " ".join(engine.executor.info.notes)
        assert run(engine, tiny_prompts(3), SamplingParams(max_new_tokens=5)) == reference(loaded, tiny_prompts(3), 5)
    finally:
        native_library.load_library.cache_clear()


def test_a_compiler_that_fails_is_named_with_its_message(monkeypatch, tmp_path):
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'fatal error: out of ideas' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "cache"))
    native_library.load_library.cache_clear()
    try:
        with pytest.raises(native_library.NativeUnavailable, match="out of ideas"):
            native_library.load_library()
    finally:
        native_library.load_library.cache_clear()


def test_the_portable_form_of_the_kernels_compiles_without_vector_flags(tmp_path):
    """Machines without AVX-512 take other branches of the sources; they have to compile too."""
    done = subprocess.run([native_library.find_compiler(), "-O0", "-std=c++17", "-fopenmp", "-fPIC", "-shared", "-Wno-psabi",
                           *map(str, native_library.SOURCES.glob("*.cpp")), "-o", str(tmp_path / "portable.so")],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:500]


def test_torch_and_the_kernels_share_one_openmp_runtime():
    script = ("import torch; from engine.model.native_library import load_library; load_library(); torch.ones(2000, 2000) @ torch.ones(2000, 2000); "
              "print(len({line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line or 'libomp' in line}))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "1"
