"""The door: what is checked before a prompt becomes a request, and how it is turned into one (or ``n``)."""

from __future__ import annotations

from hashlib import sha256

from engine.cache.layer_groups import CacheLayout
from engine.config import EngineConfig
from engine.errors import RequestRefused
from engine.model_spec import ModelSpec
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler.budget import kv_read_limit, read_window


def derive_seed(base: int, index: int) -> int:
    """A seed of its own for the ``index``-th sample of ``base``: 63 bits of SHA-256, so neighbours share no noise."""
    return int.from_bytes(sha256(f"{base}:{index}".encode()).digest()[:8], "big") >> 1


def check_prompt(tokens: object, spec: ModelSpec) -> None:
    """Raises :class:`RequestRefused` unless ``tokens`` is a non-empty list of token ids of this model."""
    if not isinstance(tokens, list) or any(isinstance(token, bool) or not isinstance(token, int) for token in tokens):
        raise RequestRefused("prompt_type", "A prompt must be a text, a list of messages, or a list of whole token numbers.")
    if not tokens:
        raise RequestRefused("prompt_empty", "The prompt is empty; write at least one character.")
    bad = next((token for token in tokens if not 0 <= token < spec.vocab_size), None)
    if bad is not None:
        raise RequestRefused("prompt_token", f"Token {bad} is not in the vocabulary, which has tokens 0 to {spec.vocab_size - 1}.")


def check_fits(num_prompt_tokens: int, params: SamplingParams, layout: CacheLayout, config: EngineConfig, spec: ModelSpec,
               who: str = "This request") -> None:
    """Raises :class:`RequestRefused` when a request of this size could never be computed, however long it waited.

    Prompt plus output minus one positions must fit the cache: the last token is never written to it.
    """
    positions = num_prompt_tokens + params.max_new_tokens - 1
    size = f"({num_prompt_tokens} prompt + {params.max_new_tokens} new tokens)"
    if spec.max_position is not None and positions + 1 > spec.max_position:
        raise RequestRefused("prompt_too_long", f"{who} {size} is longer than the {spec.max_position} positions this model knows; "
                             "shorten the prompt or ask for fewer new tokens.")
    blocks = layout.blocks_needed(positions)
    if blocks > layout.num_blocks:
        raise RequestRefused("never_fits", f"{who} {size} needs {blocks} cache blocks and the cache has {layout.num_blocks} of "
                             f"{layout.block_size} tokens; shorten it, ask for fewer new tokens, or enlarge num_blocks.")
    window = read_window(layout)
    reads = positions if window is None else min(positions, window)
    if reads > kv_read_limit(config, layout):
        raise RequestRefused("never_fits", f"{who} {size} reads up to {reads} cached tokens in a step, more than max_kv_read_tokens "
                             f"({kv_read_limit(config, layout)}) allows; shorten it or raise that limit.")


def make_requests(tokens: list[int], params: SamplingParams, *, first_ordinal: int, config: EngineConfig, arrival: float,
                  arrival_step: int, prompt_text: str, visitor: str | None, request_id: str | None,
                  seed_index: int) -> list[Request]:
    """One request for each of the ``n`` samples; the later ones name the first as their parent.

    ``seed_index`` tells prompts apart that were sent together with one seed; each gets a derived one.
    """
    base = params.seed if params.seed is not None else derive_seed(config.seed, first_ordinal)
    if params.seed is not None and seed_index:
        base = derive_seed(base, seed_index)
    first_id = request_id or f"r{first_ordinal}"
    requests = []
    for sample in range(params.n):
        ordinal = first_ordinal + sample
        name = first_id if sample == 0 else f"{first_id}.{sample}" if request_id else f"r{ordinal}"
        requests.append(Request(
            id=name, ordinal=ordinal, tokens=list(tokens), num_prompt_tokens=len(tokens), params=params,
            prompt_text=prompt_text, arrival=arrival, arrival_step=arrival_step, parent=first_id if sample else None,
            visitor=visitor, seed=base if sample == 0 else derive_seed(base, sample)))
    return requests
