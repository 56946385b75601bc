"""Read a :class:`ModelSpec` off a transformers model or configuration, or say why the engine cannot run it."""

from __future__ import annotations

import copy
from typing import Any

from engine.errors import ModelUnavailable
from engine.model_spec import FULL, SLIDING, ModelSpec


def spec_from_config(config: Any, name: str, dtype_bytes: int = 2) -> ModelSpec:
    """The numbers of a model that is not loaded: its layers are built on torch's meta device, which holds no weights.

    Raises :class:`ModelUnavailable` for an architecture that the paged engine cannot run.
    """
    import torch
    from transformers import AutoModelForCausalLM

    read_layers(config, name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config), trust_remote_code=False)
    return spec_from_model(model, name, dtype_bytes)


def spec_from_model(model: Any, name: str, dtype_bytes: int | None = None) -> ModelSpec:
    """The numbers of ``model``. ``dtype_bytes`` defaults to the width of its own weights."""
    config = text_config(model.config)
    layer_types, window = read_layers(model.config, name)
    counts = count_params(model, config)
    return ModelSpec(
        name=name,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        intermediate_size=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=_num_kv_heads(config),
        head_dim=_head_dim(config),
        vocab_size=config.vocab_size,
        num_params=counts["all"],
        num_matmul_params=counts["matmul"],
        layer_types=layer_types,
        sliding_window=window,
        max_position=getattr(config, "max_position_embeddings", None),
        dtype_bytes=dtype_bytes or model.dtype.itemsize,
        active_params=counts["active"],
        eos_token_ids=eos_token_ids(model),
    )


def text_config(config: Any) -> Any:
    """The decoder's part of a configuration (of a model that also sees images, the language half)."""
    return config.get_text_config(decoder=True)


def read_layers(config: Any, name: str) -> tuple[tuple[str, ...], int | None]:
    """Attention type of each layer and the sliding window (tokens, or ``None``).

    Raises :class:`ModelUnavailable` when a layer is something other than full or sliding attention with one common shape:
    the cache gives each layer of a group a page of the same size.
    """
    config = text_config(config)

    def refuse(why: str) -> ModelUnavailable:
        return ModelUnavailable("model_unsupported", f"{name} cannot run here, because {why}; choose a decoder-only model with "
                                "full or sliding-window attention, for example Llama, Qwen, Mistral, Gemma or GPT-NeoX.")

    if getattr(config, "is_encoder_decoder", False):
        raise refuse("it is an encoder-decoder model, and this engine runs decoders only")
    for attribute in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
        if not isinstance(getattr(config, attribute, None), int):
            raise refuse(f"its {attribute} is not one number for all layers")
    if not isinstance(_num_kv_heads(config), int):
        raise refuse("its number of KV heads differs from layer to layer")
    if getattr(config, "kv_lora_rank", None):
        raise refuse("it compresses keys and values into a latent (MLA), which has no pages of K and V")
    if getattr(config, "num_kv_shared_layers", 0):
        raise refuse("some of its layers read the cache of other layers")
    if getattr(config, "global_head_dim", None) not in (None, _head_dim(config)):
        raise refuse("its head size differs from layer to layer")

    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None:
        if getattr(config, "attention_chunk_size", None):
            raise refuse("its attention is chunked")
        layer_types = [SLIDING if window else FULL] * config.num_hidden_layers
    unknown = sorted(set(layer_types) - {FULL, SLIDING})
    if unknown:
        raise refuse(f"it has layers of the type {', '.join(map(str, unknown))}")
    if SLIDING in layer_types and not window:
        raise refuse("it has sliding-window layers without a window size")
    return tuple(layer_types), window if SLIDING in layer_types else None


def count_params(model: Any, config: Any) -> dict[str, int | None]:
    """``all`` weights (a tied one once), those multiplied with every token (``matmul``), and of these the ``active`` ones.

    A mixture of experts multiplies a token with ``num_experts_per_tok`` of its experts; ``active`` is ``None`` otherwise.
    """
    from torch import nn

    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    head = model.get_output_embeddings()
    head_id = id(head.weight) if head is not None else None
    total = matmul = experts = 0
    for parameter_name, parameter in model.named_parameters():
        total += parameter.numel()
        # A tied table is looked up at the input and multiplied at the output: the second counts.
        if parameter.ndim >= 2 and (id(parameter) not in embeddings or id(parameter) == head_id):
            matmul += parameter.numel()
            if ".experts." in parameter_name:
                experts += parameter.numel()
    chosen = getattr(config, "num_experts_per_tok", None)
    available = next((count for key in ("num_local_experts", "num_experts", "n_routed_experts")
                      if (count := getattr(config, key, None))), None)
    active = matmul - experts + experts * chosen // available if experts and chosen and available else None
    return {"all": total, "matmul": matmul, "active": active}


def eos_token_ids(model: Any) -> tuple[int, ...]:
    """Token ids that end an output: the generation config's, else the model config's."""
    for config in (getattr(model, "generation_config", None), text_config(model.config)):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, (list, tuple)) else (int(ids),)
    return ()


def _num_kv_heads(config: Any) -> Any:
    heads = getattr(config, "num_key_value_heads", None)
    return config.num_attention_heads if heads is None else heads


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
