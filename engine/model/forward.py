"""Which forward pass runs the model here: the choice between the transformers modules and faster forms of the same model."""

from __future__ import annotations

from typing import Any

from engine.model.attention import choose_backend
from engine.model.attention.base import Place
from engine.model.packed_batch import Forward, PagedKVCache
from engine.model.paged_forward import PagedForward
from engine.model_spec import ModelSpec


def make_forward(model: Any, spec: ModelSpec, attention: str, cache: PagedKVCache) -> tuple[Forward, str, list[str]]:
    """The forward pass for ``model`` over ``cache``, the name of the attention in force, and sentences about what could
    not be used. ``attention`` is the knob ``attention_backend``. Raises :class:`ModelUnavailable`."""
    text = model.config.get_text_config(decoder=True)
    place = Place(cache.storage.device, cache.storage.dtype, spec.num_heads, spec.num_kv_heads, spec.head_dim, cache.layout.block_size,
                  softcap=bool(getattr(text, "attn_logit_softcapping", None)))
    backend, notes = choose_backend(attention, place)
    forward = PagedForward(model, backend)
    forward.check(cache)
    return forward, backend.name, notes
