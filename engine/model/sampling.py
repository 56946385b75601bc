"""Choosing the next token of every sampled row, in one batch.

A drawn token is a function of the request's seed, the token's position and the row's logits, and of nothing else: there is
no generator whose state rows or steps would share. The draw inverts the cumulative distribution, in the order of token
ids, at one number u(seed, position).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.plan import Slice

_MASK = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclass(slots=True)
class SamplingInputs:
    """What choosing the tokens of a step needs. Tensors on the model's device; M of the S sampled rows are drawn.

    ``drawn``: those rows, int64 [M], or ``None`` when all rows are greedy; parallel to it ``temperature``, ``top_k``
    (0: off), ``min_p`` (0: off) and ``uniform`` (float64, in [0, 1)). ``nucleus``: places among the M rows that have a
    ``top_p`` (parallel to it), or ``None``.
    ``penalised``: rows with a repetition penalty, with ``penalty`` and ``history`` [rows, longest], ids seen so far
    (shorter ones repeat an id). ``top_logprobs``: for each of the S rows how many log-probabilities are wanted (host).
    """

    drawn: torch.Tensor | None = None
    temperature: torch.Tensor | None = None
    top_k: torch.Tensor | None = None
    min_p: torch.Tensor | None = None
    uniform: torch.Tensor | None = None
    max_top_k: int = 0
    uses_min_p: bool = False
    nucleus: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    penalised: torch.Tensor | None = None
    penalty: torch.Tensor | None = None
    history: torch.Tensor | None = None
    top_logprobs: tuple[int, ...] = ()

    @property
    def all_greedy(self) -> bool:
        """Whether the highest logit of each row is all that is wanted."""
        return self.drawn is None and self.penalised is None and not self.top_logprobs

    @property
    def num_logprobs(self) -> int:
        return max(self.top_logprobs, default=0)


@dataclass(slots=True)
class Sampled:
    """``tokens`` int64 [S]; with log-probabilities: ``chosen`` [S], ``top_values`` and ``top_ids`` [S, most wanted]."""

    tokens: torch.Tensor
    chosen: torch.Tensor | None = None
    top_values: torch.Tensor | None = None
    top_ids: torch.Tensor | None = None


def sampling_inputs(slices: Sequence[Slice], device: torch.device) -> SamplingInputs:
    """Gather the parameters of the sampling ``slices``, in order. The token being chosen stands at ``start + count``."""
    params = [piece.request.params for piece in slices]
    inputs = SamplingInputs()
    if any(item.logprobs for item in params):
        inputs.top_logprobs = tuple(item.logprobs for item in params)
    drawn = [i for i, item in enumerate(params) if not item.greedy]
    if drawn:
        chosen = [params[i] for i in drawn]
        seeds = np.array([slices[i].request.seed & int(_MASK) for i in drawn], np.uint64)
        positions = np.array([slices[i].start + slices[i].count for i in drawn], np.uint64)
        inputs.drawn = _to(np.array(drawn), device)
        inputs.temperature = _to(np.array([item.temperature for item in chosen], np.float32), device)
        inputs.top_k = _to(np.array([item.top_k for item in chosen], np.int64), device)
        inputs.min_p = _to(np.array([item.min_p for item in chosen], np.float32), device)
        inputs.uniform = _to(uniform(seeds, positions), device)
        inputs.max_top_k = max(item.top_k for item in chosen)
        inputs.uses_min_p = any(item.min_p > 0.0 for item in chosen)
        nucleus = [i for i, item in enumerate(chosen) if item.top_p < 1.0]
        if nucleus:
            inputs.nucleus = _to(np.array(nucleus), device)
            inputs.top_p = _to(np.array([chosen[i].top_p for i in nucleus], np.float64), device)
    penalised = [i for i, item in enumerate(params) if item.repetition_penalty != 1.0]
    if penalised:
        inputs.penalised = _to(np.array(penalised), device)
        inputs.penalty = _to(np.array([params[i].repetition_penalty for i in penalised], np.float32), device)
        histories = [slices[i].request.tokens[:slices[i].start + slices[i].count] for i in penalised]
        longest = max(map(len, histories))
        inputs.history = _to(np.array([tokens + [tokens[0]] * (longest - len(tokens)) for tokens in histories], np.int64), device)
    return inputs


def uniform(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One float64 in [0, 1) for each pair: the SplitMix64 finaliser (Steele et al. 2014), applied to seed and position in
    turn, of which the upper 53 bits are kept."""
    with np.errstate(over="ignore"):
        bits = _mix(_mix(seeds.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) ^ positions.astype(np.uint64))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def _mix(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def sample(logits: torch.Tensor, inputs: SamplingInputs) -> Sampled:
    """Choose a token for each row of ``logits`` [S, vocabulary]. Log-probabilities are the model's own: before penalty,
    temperature and filters."""
    raw = logits
    if inputs.penalised is not None:
        logits = _penalise(logits, inputs)
    tokens = logits.argmax(-1)
    if inputs.drawn is not None:
        rows = logits.index_select(0, inputs.drawn).float()
        tokens = tokens.index_copy(0, inputs.drawn, _draw(rows, inputs))
    if not inputs.num_logprobs:
        return Sampled(tokens)
    logprobs = torch.log_softmax(raw.float(), dim=-1)
    values, ids = logprobs.topk(min(inputs.num_logprobs, logprobs.shape[-1]), dim=-1)
    return Sampled(tokens, logprobs.gather(1, tokens[:, None])[:, 0], values, ids)


def logprobs_of(sampled: Sampled, inputs: SamplingInputs) -> list[tuple[float, list[tuple[int, float]]] | None]:
    """Per row: ``None``, or (log-probability of the chosen token, [(id, log-probability), …] of the most likely ones)."""
    if sampled.chosen is None:
        return [None] * sampled.tokens.shape[0]
    chosen, values, ids = sampled.chosen.tolist(), sampled.top_values.tolist(), sampled.top_ids.tolist()
    return [(chosen[row], list(zip(ids[row][:wanted], values[row][:wanted], strict=True))) if wanted else None
            for row, wanted in enumerate(inputs.top_logprobs)]


def _penalise(logits: torch.Tensor, inputs: SamplingInputs) -> torch.Tensor:
    """Divide the positive and multiply the negative logits of ids already seen (Keskar et al. 2019)."""
    rows = logits.index_select(0, inputs.penalised).float()
    seen = rows.gather(1, inputs.history)
    penalty = inputs.penalty[:, None]
    rows = rows.scatter(1, inputs.history, torch.where(seen < 0, seen * penalty, seen / penalty))
    return logits.float().index_copy(0, inputs.penalised, rows)


def _draw(logits: torch.Tensor, inputs: SamplingInputs) -> torch.Tensor:
    """Token ids [M] drawn from float32 ``logits`` [M, V].

    Works on weights, probabilities relative to the most likely token's. Each filter says what weight is the lowest it lets
    pass, and a token must pass all of them. Whichever filters the other rows use, a row's own come out the same.
    """
    logits = logits / inputs.temperature[:, None]
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    threshold = torch.zeros_like(weights[:, :1])
    if inputs.uses_min_p:
        threshold = torch.maximum(threshold, inputs.min_p[:, None])
    if inputs.max_top_k:
        threshold = torch.maximum(threshold, _top_k_threshold(weights, inputs))
    if inputs.nucleus is not None:
        # Of what top-k leaves; min-p is judged on its own.
        rows = weights.index_select(0, inputs.nucleus)
        if inputs.max_top_k:
            rows = rows.masked_fill_(rows < _top_k_threshold(weights, inputs).index_select(0, inputs.nucleus), 0.0)
        lowest = torch.zeros_like(threshold).index_copy_(0, inputs.nucleus, _nucleus_threshold(rows, inputs.top_p))
        threshold = torch.maximum(threshold, lowest)
    weights = weights.masked_fill_(weights < threshold, 0.0)
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    # The first id whose cumulative weight exceeds the target: never one of weight zero.
    target = inputs.uniform[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, target, right=True)
    return torch.where(ids < weights.shape[1], ids, weights.argmax(-1, keepdim=True))[:, 0]


def _top_k_threshold(weights: torch.Tensor, inputs: SamplingInputs) -> torch.Tensor:
    """The k-th highest weight of each row [M, 1]; 0 where top-k is off."""
    most = min(inputs.max_top_k, weights.shape[1])
    kth = weights.topk(most, dim=-1).values.gather(1, (inputs.top_k - 1).clamp(0, most - 1)[:, None])
    return kth.masked_fill((inputs.top_k == 0)[:, None], 0.0)


def _nucleus_threshold(weights: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The lowest weight in the smallest set of most likely tokens that holds a share ``top_p`` of the row [rows, 1]."""
    if weights.device.type == "cpu":
        # NumPy sorts floats in vector registers, an order of magnitude faster than torch does on a CPU.
        ordered = torch.from_numpy(np.sort(weights.numpy(), axis=-1)).flip(-1)
    else:
        ordered = weights.sort(dim=-1, descending=True).values
    through = ordered.cumsum(-1, dtype=torch.float64)
    # A token belongs to the set when those before it do not hold the share yet.
    wanted = top_p[:, None] * through[:, -1:]
    last = torch.searchsorted(through, wanted).clamp_(max=weights.shape[1] - 1)
    return ordered.gather(1, last)


def _to(array: np.ndarray, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor
