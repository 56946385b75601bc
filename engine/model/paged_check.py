"""Before a model serves anybody from the paged cache, its answers there must be those it gives on its own."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch

from engine.cache.layer_groups import SENTINEL, CacheLayout
from engine.errors import ModelUnavailable
from engine.model.packed_batch import GatherIndices, GroupIndices, PackedBatch, PagedKVCache
from engine.model.paged_forward import PagedForward

#: Positions of the trial: a slice of a text, then one decoded token on top of it.
TRIAL_TOKENS = 12

#: Least likeness (cosine) of two rows of logits that are the same but for rounding. In half precision a mixture of experts may
#: send a token elsewhere for a rounding.
LIKENESS = {torch.float32: 0.9999, torch.bfloat16: 0.95, torch.float16: 0.97}

#: model → attention backends that it has passed with
_passed: WeakKeyDictionary = WeakKeyDictionary()


def check_paged(forward: PagedForward, cache: PagedKVCache) -> None:
    """Run a few tokens through ``forward``, on blocks like those of ``cache``, and through the model itself, and compare.
    Once per model and backend. Raises :class:`ModelUnavailable`, saying what is wrong."""
    model, name = forward.model, type(forward.model).__name__
    passed = _passed.setdefault(model, set())
    if forward.backend.name in passed:
        return
    layout = CacheLayout(cache.layout.groups, len(cache.layout.groups) * -(-TRIAL_TOKENS // cache.layout.block_size),
                         cache.layout.block_size, 0)
    device = cache.storage.device
    ids = torch.arange(3, 3 + TRIAL_TOKENS, device=device) * 7 % model.config.get_text_config(decoder=True).vocab_size
    try:
        with torch.inference_mode(False):
            small = PagedKVCache(layout, cache.num_kv_heads, cache.head_dim, cache.storage.dtype, device)
        with torch.inference_mode():
            first, layers = forward.trial(_trial_batch(layout, ids, 0, TRIAL_TOKENS - 1), small)
            second, _ = forward.trial(_trial_batch(layout, ids, TRIAL_TOKENS - 1, TRIAL_TOKENS), small)
            expected = model(input_ids=ids[None], use_cache=False).logits[0, -2:].float()
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
        why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelUnavailable("paged_forward", f"{name} cannot run on the paged cache: {why}.") from error
    missing = set(cache.place_of_layer) - layers
    if missing:
        raise ModelUnavailable(
            "paged_forward",
            f"{name} keeps {len(missing)} of its layers away from the attention interface, so "
            "their state cannot be paged; choose another architecture.",
        )
    likeness = torch.cosine_similarity(torch.cat([first, second]).float(), expected, dim=-1).min().item()
    if not likeness >= LIKENESS[cache.storage.dtype]:
        raise ModelUnavailable(
            "paged_forward",
            f"{name} gives other answers from the paged cache than on its own (likeness "
            f"{likeness:.3f}), because it uses its keys and values in a way of its own; choose another architecture.",
        )
    passed.add(forward.backend.name)


def _trial_batch(layout: CacheLayout, ids: torch.Tensor, start: int, end: int) -> PackedBatch:
    """Positions ``start`` … ``end - 1`` of one request whose blocks follow one another, group after group."""
    device, size, count = ids.device, layout.block_size, end - start
    blocks = layout.num_blocks // len(layout.groups)
    positions = torch.arange(start, end, device=device)

    def numbers(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    groups = []
    for group in layout.groups:
        first, window = group.index * blocks, group.window
        slots = first * size + (positions if window is None else positions % window)
        if window is not None:
            slots = torch.where(positions < end - window, layout.padding_write * size, slots)
        readable = end if window is None else min(end, window)
        # The slice begins at position 0, so nothing of it is in the ring yet.
        gather = (
            None
            if window is None or count == 1
            else GatherIndices(
                torch.full((count,), SENTINEL, device=device),
                numbers(0, count),
                numbers(dtype=torch.int64),
                torch.arange(count, device=device),
                count,
            )
        )
        groups.append(GroupIndices(window, torch.arange(first, first + blocks, dtype=torch.int32, device=device)[None], slots,
                                   numbers(readable), readable, gather))
    single = int(count == 1)
    return PackedBatch(ids[start:end], positions, numbers(0, count), single, 0 if single else count, groups,
                       numbers(count - 1, dtype=torch.int64))
