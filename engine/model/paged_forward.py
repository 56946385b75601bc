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
from engine.model.packed_batch import GroupIndices, PackedBatch, PagedKVCache

#: The name under which transformers knows our attention. Its masks are those of SDPA, for calls outside the engine.
ATTENTION_NAME = "batchscope_paged"


@dataclass(slots=True)
class _Step:
    batch: PackedBatch
    cache: PagedKVCache
    backend: AttentionBackend
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

    Outside a :class:`PagedForward`, for instance in ``model.generate``, it is transformers' own SDPA attention.
    """
    step: _Step | None = getattr(_current, "step", None)
    if step is None:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    if s_aux is not None:
        raise ModelUnavailable("attention_sinks", "This model adds attention sinks to its scores, which the paged cache does not "
                               "support; choose a model without them.")
    layer = module.layer_idx
    group, place = step.cache.place_of_layer[layer]
    step.layers_seen.add(layer)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    out = step.backend.attend(
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), step.cache.keys[place],
        step.cache.values[place], step.batch, step.batch.groups[group], Scores(scale, softcap))
    return out.unsqueeze(0), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, _paged_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


class PagedForward:
    """A :class:`~engine.model.packed_batch.Forward` for a transformers causal language model.

    Raises :class:`ModelUnavailable` when the model does not route its attention through transformers' interface, or keeps
    K/V of a shape the cache does not have.
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

    def check(self, cache: PagedKVCache) -> None:
        """Run one padding token through and make sure that every layer came by the paged cache. Raises
        :class:`ModelUnavailable`."""
        device, layout = cache.storage.device, cache.layout

        def whole(value: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.full((1,), value, dtype=dtype, device=device)

        batch = PackedBatch(
            input_ids=whole(0, torch.int64), position_ids=whole(0, torch.int64), num_decode=1, max_query=0,
            query_starts=torch.arange(2, dtype=torch.int32, device=device), sample_rows=whole(0, torch.int64),
            groups=[GroupIndices(group.window, whole(layout.padding_read, torch.int32)[None],
                                 whole(layout.padding_write * layout.block_size, torch.int64), whole(1, torch.int32), 1)
                    for group in layout.groups])
        try:
            _, step = self._run(batch, cache)
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ModelUnavailable("paged_forward", f"{type(self.model).__name__} cannot run on the paged cache: {why}.") from error
        missing = set(cache.place_of_layer) - step.layers_seen
        if missing:
            raise ModelUnavailable("paged_forward", f"{type(self.model).__name__} keeps {len(missing)} of its layers away from the "
                                   "attention interface, so their state cannot be paged; choose another architecture.")

    def _run(self, batch: PackedBatch, cache: PagedKVCache) -> tuple[torch.Tensor, _Step]:
        step = _Step(batch, cache, self.backend)
        batch.derived.clear()
        rows = {"logits_to_keep": batch.sample_rows} if self._selects_rows else {}
        with torch.no_grad(), _running(step):
            logits = self.model(input_ids=batch.input_ids[None], position_ids=batch.position_ids[None],
                                attention_mask=self._no_mask, use_cache=False, **rows).logits
        logits = logits[0]
        return (logits if self._selects_rows else logits.index_select(0, batch.sample_rows)), step
