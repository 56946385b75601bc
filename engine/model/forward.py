"""Which forward pass runs the model here: the choice between the transformers modules and faster forms of the same model."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch

from engine.cache.layer_groups import FULL, CacheLayout, LayerGroup
from engine.model.attention import choose_backend
from engine.model.attention.base import Place
from engine.model.attention.sdpa import SdpaBackend
from engine.model.fused_decoder import FusedDecoder
from engine.model.native_library import NativeUnavailable
from engine.model.packed_batch import Forward, GroupIndices, PackedBatch, PagedKVCache
from engine.model.paged_check import check_paged
from engine.model.paged_forward import PagedForward
from engine.model_spec import ModelSpec

#: Largest difference of a logit, as a share of the largest one, that is still the same model added up in another order.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}

#: The fused form of each model, made once and shared by its rooms; or why there is none.
_fused: WeakKeyDictionary[Any, FusedDecoder | str] = WeakKeyDictionary()


def make_forward(model: Any, spec: ModelSpec, attention: str, cache: PagedKVCache) -> tuple[Forward, str, list[str]]:
    """The forward pass for ``model`` over ``cache``, the name of the attention in force, and sentences about what could
    not be used. ``attention`` is the knob ``attention_backend``. Raises :class:`ModelUnavailable`."""
    why = ""
    if attention in ("auto", "native") and cache.storage.device.type == "cpu":
        fused = fused_decoder(model)
        if isinstance(fused, FusedDecoder):
            return fused, fused.name, []
        why = f"The fused CPU decoder is not used: {fused}."
    text = model.config.get_text_config(decoder=True)
    place = Place(
        cache.storage.device, cache.storage.dtype, spec.num_heads, spec.num_kv_heads, spec.head_dim, cache.layout.block_size,
        softcap=bool(getattr(text, "attn_logit_softcapping", None)),
        sinks=any(name.endswith(".sinks") for name, _ in model.named_parameters()))
    backend, notes = choose_backend(attention, place)
    forward = PagedForward(model, backend)
    check_paged(forward, cache)
    return forward, backend.name, [why, *notes] if why else notes


def fused_decoder(model: Any) -> FusedDecoder | str:
    """The fused form of ``model``, or why there is none, as the end of a sentence. It is used only after it has given the
    logits of the transformers modules on a short text."""
    if model not in _fused:
        try:
            decoder = FusedDecoder(model)
            _fused[model] = _disagreement(model, decoder) or decoder
        except NativeUnavailable as error:
            _fused[model] = str(error)
    return _fused[model]


@torch.inference_mode()
def _disagreement(model: Any, decoder: FusedDecoder) -> str | None:
    config, count, size = model.config, 40, 16
    layout = CacheLayout((LayerGroup(0, FULL, tuple(range(config.num_hidden_layers))),), 3, size, 0)
    head_dim = model.model.layers[0].self_attn.head_dim
    ids = torch.arange(count) * 7 % config.vocab_size
    logits = []
    for forward in (decoder, PagedForward(model, SdpaBackend())):
        cache = PagedKVCache(layout, config.num_key_value_heads, head_dim, decoder.dtype, torch.device("cpu"))
        # Two steps: a slice of the text, then the rest of it on top of the cache.
        for start, end in ((0, count // 2), (count // 2, count)):
            group = GroupIndices(
                None,
                torch.tensor([[2, 0, 1]], dtype=torch.int32),
                (torch.arange(start, end) + 2 * size) % (3 * size),
                torch.tensor([end], dtype=torch.int32),
                end,
            )
            batch = PackedBatch(ids[start:end], torch.arange(start, end), torch.tensor([0, end - start], dtype=torch.int32), 0,
                                end - start, [group], torch.arange(end - start))
            rows = forward(batch, cache).float()
        logits.append(rows)
    worst = ((logits[0] - logits[1]).abs().max() / logits[1].abs().max()).item()
    return None if worst <= TOLERANCE[decoder.dtype] else f"its logits differ from the transformers modules' by {worst:.1%}"
