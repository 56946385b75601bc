"""A model that would answer wrongly from the paged cache is refused in words before it serves anybody."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, DiffLlamaConfig, PhiConfig

from engine.cache.layer_groups import CacheLayout, group_layers
from engine.errors import ModelUnavailable
from engine.model.attention.sdpa import SdpaBackend
from engine.model.packed_batch import PagedKVCache
from engine.model.paged_check import check_paged
from engine.model.paged_forward import PagedForward
from engine.model_spec import SLIDING, ModelSpec
from tests.tiny_models import KINDS, tiny_model

SIZES = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "initializer_range": 0.2}


def check(model, window: int | None = None, heads: int = 2, head_dim: int = 8) -> None:
    kinds = tuple(getattr(model.config, "layer_types", None) or ["full_attention"] * 4)
    if window and SLIDING not in kinds:
        kinds = (SLIDING,) * 4
    spec = ModelSpec("m", 4, 32, 64, 4, heads, head_dim, 128, 0, 0, kinds, window)
    layout = CacheLayout(group_layers(spec), 8, 4, 0)
    check_paged(PagedForward(model, SdpaBackend()), PagedKVCache(layout, heads, head_dim, model.dtype, torch.device("cpu")))


def made(config) -> AutoModelForCausalLM:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_models_that_serve_well_pass(kind, dtype):
    model = tiny_model(kind).to(dtype)
    config = model.config
    check(model, getattr(config, "sliding_window", None), getattr(config, "num_key_value_heads", 4),
          getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def test_a_model_outside_the_attention_interface_is_refused():
    model = tiny_model("llama")

    class Other(type(model)):
        _supports_attention_backend = False

    with pytest.raises(ModelUnavailable, match="does not use transformers' attention interface"):
        PagedForward(Other(model.config), SdpaBackend())


def test_a_layer_that_keeps_its_state_elsewhere_is_noticed():
    model = tiny_model("llama")
    model.model.layers[2].self_attn.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    with pytest.raises(ModelUnavailable, match="keeps 1 of its layers away"):
        check(model)


def test_a_window_that_a_layer_does_not_have_is_noticed():
    with pytest.raises(
        ModelUnavailable,
        match="Layer 0 of this model attends with a window of 8 tokens, but its configuration promises no window",
    ):
        check(tiny_model("mistral"))


def test_an_ignored_window_in_a_configuration_is_noticed_by_the_answers():
    """Phi has no windows, whatever its configuration says."""
    with pytest.raises(ModelUnavailable, match="gives other answers from the paged cache"):
        check(made(PhiConfig(**SIZES)), 8)


def test_heads_of_another_shape_than_promised_are_noticed():
    with pytest.raises(ModelUnavailable, match="keeps 2 K/V heads of size 16, but its configuration promises 2 of size 8"):
        check(tiny_model("qwen3"))


def test_attention_that_uses_keys_and_values_in_its_own_way_is_noticed():
    """DiffLlama takes the difference of two attentions over the halves of its values."""
    with pytest.raises(ModelUnavailable):
        check(made(DiffLlamaConfig(**SIZES)))
