"""Random models of the size of a thumbnail, one for each shape of attention that the engine must get right."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

VOCAB = 128
_COMMON = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
           "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_GROUPED = {**_COMMON, "num_key_value_heads": 2}

#: kind → configuration class and what is special about it.
KINDS: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, _GROUPED),
    "qwen2": (Qwen2Config, _GROUPED),                              # biases on Q, K and V
    "qwen3": (Qwen3Config, {**_GROUPED, "head_dim": 16}),          # Q and K are normalised; heads wider than hidden / heads
    "mistral": (MistralConfig, {**_GROUPED, "sliding_window": 8}),   # every layer slides
    # Sliding and full layers, capped attention scores, a scale that is not 1/sqrt(head_dim).
    "gemma2": (Gemma2Config, {**_GROUPED, "head_dim": 16, "query_pre_attn_scalar": 32, "sliding_window": 8,
                              "tie_word_embeddings": False, "layer_types": ["sliding_attention", "full_attention"] * 2}),
    # Three sliding layers to one full one, with two rotary bases.
    "gemma3": (Gemma3TextConfig, {**_GROUPED, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8,
                                  "tie_word_embeddings": False, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}),
    "gpt_neox": (GPTNeoXConfig, _COMMON),                          # one K/V head a query head, rotary on a part of the head
}


def tiny_model(kind: str, seed: int = 0, **overrides: Any) -> Any:
    """A random fp32 model in evaluation mode; ``model.config`` is its configuration. A pure function of its arguments.

    ``kind`` is a key of :data:`KINDS`; ``overrides`` replace values of its configuration. Weights are drawn wider than a
    training run would start with, so that greedy outputs differ from prompt to prompt instead of repeating one token.
    """
    config_class, values = KINDS[kind]
    config = config_class(**{"initializer_range": 0.2, **values, **overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return model.requires_grad_(False)
