"""A model's numbers, checked against the model itself, and the architectures that are refused with a sentence."""

from __future__ import annotations

import pytest
from transformers import DeepseekV3Config, FalconMambaConfig, LlamaConfig, MixtralConfig, Qwen2Config, T5Config

from engine.errors import ModelUnavailable
from engine.model.spec import read_layers, spec_from_config, spec_from_model
from engine.model_spec import FULL, SLIDING
from tests.tiny_models import KINDS, VOCAB, tiny_model


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_is_that_of_the_weights(kind):
    model = tiny_model(kind)
    spec = spec_from_model(model, kind)
    assert spec.num_layers == 4 == len(spec.layer_types)
    assert spec.vocab_size == VOCAB == model.get_output_embeddings().weight.shape[0]
    assert spec.num_params == sum(parameter.numel() for parameter in model.parameters())
    assert spec.dtype_bytes == 4
    assert spec.eos_token_ids == (2,)
    if kind == "gpt_neox":
        assert spec.num_kv_heads == spec.num_heads == 4
    else:
        projection = next(module for name, module in model.named_modules() if name.endswith("k_proj"))
        assert spec.num_kv_heads * spec.head_dim == projection.weight.shape[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_not_loaded_has_the_same_numbers(kind):
    model = tiny_model(kind)
    assert spec_from_config(model.config, kind, dtype_bytes=4) == spec_from_model(model, kind)


def test_llama_weights_counted_by_hand():
    spec = spec_from_model(tiny_model("llama"), "llama")
    hidden, inner, kv_width, layers = 32, 64, 16, 4
    per_layer = 2 * hidden * hidden + 2 * hidden * kv_width + 3 * hidden * inner
    assert spec.num_matmul_params == layers * per_layer + hidden * VOCAB
    assert spec.num_params == layers * (per_layer + 2 * hidden) + 2 * hidden * VOCAB + hidden
    assert spec.active_params is None


def test_a_tied_table_is_stored_once_and_multiplied_once():
    untied, tied = (spec_from_model(tiny_model("llama", tie_word_embeddings=value), "llama") for value in (False, True))
    assert tied.num_matmul_params == untied.num_matmul_params
    assert tied.num_params == untied.num_params - 32 * VOCAB


def test_a_mixture_of_experts_has_fewer_active_weights():
    config = MixtralConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2)
    spec = spec_from_config(config, "mixtral")
    expert = 3 * 32 * 48
    assert spec.num_matmul_params - spec.active_params == 2 * (8 - 2) * expert


def test_layer_types_and_window():
    assert read_layers(tiny_model("gemma3").config, "g") == ((SLIDING, SLIDING, SLIDING, FULL), 8)
    assert read_layers(tiny_model("mistral").config, "m") == ((SLIDING,) * 4, 8)
    assert read_layers(LlamaConfig(num_hidden_layers=2), "l") == ((FULL, FULL), None)
    # Qwen2 names a window that is switched off.
    assert read_layers(Qwen2Config(num_hidden_layers=2, sliding_window=64, use_sliding_window=False), "q") == ((FULL, FULL), None)


@pytest.mark.parametrize(("config", "word"), [
    (T5Config(), "encoder-decoder"),
    (DeepseekV3Config(), "MLA"),
    (FalconMambaConfig(), "num_attention_heads"),
    (LlamaConfig(num_hidden_layers=2, layer_types=["full_attention", "linear_attention"]), "linear_attention"),
])
def test_architectures_without_pages_of_one_shape_are_refused_by_name(config, word):
    with pytest.raises(ModelUnavailable, match=word) as caught:
        read_layers(config, "acme/model")
    assert "acme/model cannot run here" in caught.value.message


def test_kv_heads_that_differ_between_layers_are_refused():
    config = LlamaConfig(num_hidden_layers=2)
    vars(config)["num_key_value_heads"] = [4, 8]        # as the configurations of OpenELM and its like hold them
    with pytest.raises(ModelUnavailable, match="KV heads differs from layer to layer"):
        read_layers(config, "acme/uneven")
