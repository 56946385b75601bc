"""Any transformers decoder over the paged cache, through transformers' own attention interface.

The model runs as it is, on one row that holds the tokens of all requests. Its attention modules call the function registered
here instead of their own; it finds the step in a thread-local, because not every architecture passes unknown arguments down
to its attention.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.errors import ModelUnavailable
from engine.model.attention.base import AttentionBackend, Scores
from engine.model.packed_batch import PackedBatch, PagedKVCache

#: The name under which transformers knows our attention. Its masks are those of SDPA, for calls outside the engine.
ATTENTION_NAME = "batchscope_paged"


@dataclass(slots=True)
class _Step:
    batch: PackedBatch
    cache: PagedKVCache
    backend: AttentionBackend
    checking: bool = False
    layers_seen: set[int] = field(default_factory=set)


_current = threading.local()


@contextmanager
def _running(step: _Step) -> Iterator[None]:
    _current.step = step
    try:
        yield
    finally:
        _current.step = None


def _paged_attention(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, softcap=None, s_aux=None,
                     **kwargs):
    """The signature transformers' attention modules call: ``query`` [1, Hq, T, D], ``key``/``value`` [1, Hkv, T, D].

    Outside a :class:`PagedForward`, for instance in ``model.generate``, it is transformers' own SDPA attention, and plain
    attention where scores are capped or have sinks, which that one forgets.
    """
    step: _Step | None = getattr(_current, "step", None)
    if step is None:
        if softcap is not None or s_aux is not None:
            return _plain_attention(query, key, value, attention_mask, scaling, softcap, s_aux), None
        return ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    group, place = step.cache.place_of_layer[module.layer_idx]
    if step.checking:
        _check_layer(step, module.layer_idx, key, value, kwargs)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    out = step.backend.attend(
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), step.cache.keys[place],
        step.cache.values[place], step.batch, step.batch.groups[group], Scores(scale, softcap, s_aux))
    return out.unsqueeze(0), None


def _plain_attention(query, key, value, mask, scaling: float, softcap: float | None, sinks: torch.Tensor | None) -> torch.Tensor:
    share, length = query.shape[1] // key.shape[1], key.shape[2]
    key, value = key.repeat_interleave(share, dim=1), value.repeat_interleave(share, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is None:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril(length - scores.shape[2])
    scores = scores.masked_fill(~mask[..., :length], float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(1, -1, 1, 1).to(scores.dtype).expand(*scores.shape[:3], 1)], dim=-1)
    shares = torch.softmax(scores, dim=-1, dtype=torch.float32)[..., :length]
    return (shares.to(value.dtype) @ value).transpose(1, 2)


def _check_layer(step: _Step, layer: int, key: torch.Tensor, value: torch.Tensor, options: dict) -> None:
    """Raises :class:`ModelUnavailable` unless the layer's K/V and window are those that the cache was made for."""
    made_for = (step.cache.num_kv_heads, step.cache.head_dim)
    for tensor in (key, value):
        heads, size = tensor.shape[1], tensor.shape[3]
        if (heads, size) != made_for:
            raise ModelUnavailable(
                "paged_forward",
                f"Layer {layer} of this model keeps {heads} K/V heads of size {size}, but its "
                f"configuration promises {made_for[0]} of size {made_for[1]}, so its cache cannot be laid out; "
                "choose another model.",
            )
    promised = step.cache.layout.groups[step.cache.place_of_layer[layer][0]].window
    window = options.get("sliding_window", promised)       # not every attention module says what its window is
    if window != promised:
        words = [f"a window of {width} tokens" if width else "no window" for width in (window, promised)]
        raise ModelUnavailable("paged_forward", f"Layer {layer} of this model attends with {words[0]}, but its configuration "
                               f"promises {words[1]}, so its cache cannot be laid out; choose another model.")
    step.layers_seen.add(layer)


ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, _paged_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


class PagedForward:
    """A :class:`~engine.model.packed_batch.Forward` for a transformers causal language model.

    Raises :class:`ModelUnavailable` when the model does not route its attention through transformers' interface. Whether its
    answers come out right is for :func:`engine.model.paged_check.check_paged` to find out.
    """

    name = "transformers"

    def __init__(self, model, backend: AttentionBackend) -> None:
        self.model = model
        self.backend = backend
        if not getattr(model, "_supports_attention_backend", False):
            raise ModelUnavailable("no_attention_interface", f"{type(model).__name__} does not use transformers' attention "
                                   "interface, so its K/V cannot be paged; choose another architecture.")
        # For good, not around each step: steps of other rooms may run in other threads on the same model.
        if model.config._attn_implementation != ATTENTION_NAME:
            model.set_attn_implementation(ATTENTION_NAME)
        # transformers takes a mask of four dimensions as ready-made, so none is ever built; nobody reads this one.
        self._no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=model.device)
        self._selects_rows = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(self, batch: PackedBatch, cache: PagedKVCache) -> torch.Tensor:
        """Logits [S, vocab_size] of ``batch.sample_rows``; see :class:`~engine.model.packed_batch.Forward`."""
        logits, _ = self._run(batch, cache)
        return logits

    def trial(self, batch: PackedBatch, cache: PagedKVCache) -> tuple[torch.Tensor, set[int]]:
        """As a call, with every layer's K/V and window checked against the cache. Returns the logits and the layers that
        came by. Raises :class:`ModelUnavailable`."""
        logits, step = self._run(batch, cache, checking=True)
        return logits, step.layers_seen

    def _run(self, batch: PackedBatch, cache: PagedKVCache, checking: bool = False) -> tuple[torch.Tensor, _Step]:
        step = _Step(batch, cache, self.backend, checking)
        batch.derived.clear()
        rows = {"logits_to_keep": batch.sample_rows} if self._selects_rows else {}
        with torch.no_grad(), _running(step):
            logits = self.model(input_ids=batch.input_ids[None], position_ids=batch.position_ids[None],
                                attention_mask=self._no_mask, use_cache=False, **rows).logits
        logits = logits[0]
        return (logits if self._selects_rows else logits.index_select(0, batch.sample_rows)), step
