"""How many blocks fit: the memory equation, solved.

With ``budget = max_memory_percent * free bytes``, and N blocks,

    budget  >=  N * block_bytes                                  K and V
             +  N * block_size * index_bytes * io                one read index a slot, for each of the io buffer sets
             +  max_batch_tokens * activation_bytes              hidden states, projections, the MLP's inner activations
             +  max_requests_per_batch * vocab_size * 4 * io     logits in fp32
             +  max_batch_tokens * mask_bytes * io               positions, write indices, lengths

which is linear in N. ``io`` is 2 with async batching (two buffer sets), else 1. The terms follow the sizing described in
transformers' continuous-batching documentation; the activation term is this project's own estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.cache.layer_groups import CacheLayout, group_layers
from engine.config import EngineConfig
from engine.errors import ConfigRefused
from engine.model_spec import ModelSpec

INDEX_BYTES = 4
ROW_BYTES = 32          # per query token: position, slot, row number and lengths in the input buffers
LOGIT_BYTES = 4
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Sizing:
    """The solved equation, term by term, bytes; shown on screen and used by the lessons. ``limited_by`` is ``"memory"``,
    ``"usable"`` (more blocks than all requests at full length could ever use) or ``"explicit"``."""

    free_bytes: int
    budget_bytes: int
    kv_bytes: int
    index_bytes: int
    activation_bytes: int
    logit_bytes: int
    row_bytes: int
    limited_by: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def activation_bytes_per_token(spec: ModelSpec) -> int:
    """Residual twice, the fused projections, and the MLP's two inner activations, for one layer at a time."""
    qkv = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    return spec.dtype_bytes * (3 * spec.hidden_size + qkv + 2 * spec.intermediate_size)


def plan_layout(spec: ModelSpec, config: EngineConfig, free_bytes: int, shrink: float = 1.0) -> tuple[CacheLayout, Sizing]:
    """The cache layout for ``config``, and how it was sized. ``shrink`` below 1 asks for a smaller automatic plan.

    Raises :class:`ConfigRefused` when not even one block fits.
    """
    groups = group_layers(spec)
    block_bytes = len(groups[0].layers) * spec.kv_bytes_per_token_per_layer * config.block_size
    io = 2 if config.use_async_batching else 1
    budget = int(free_bytes * config.max_memory_percent)
    activations = config.max_batch_tokens * activation_bytes_per_token(spec)
    logits = config.max_requests_per_batch * spec.vocab_size * LOGIT_BYTES * io
    rows = config.max_batch_tokens * ROW_BYTES * io
    per_block_index = config.block_size * INDEX_BYTES * io

    limited_by = "explicit"
    num_blocks = config.num_blocks
    if num_blocks is None:
        limited_by = "memory"
        num_blocks = int(max(0, budget - activations - logits - rows) // (block_bytes + per_block_index) * shrink)
        if spec.max_position:
            per_request = sum(group.blocks_needed(spec.max_position, config.block_size) for group in groups)
            if num_blocks > per_request * config.max_requests_per_batch:
                num_blocks, limited_by = per_request * config.max_requests_per_batch, "usable"
        if num_blocks < 1:
            raise ConfigRefused("no_memory", f"No cache block fits: {budget / GIB:.2f} GiB may be used, and activations and logits "
                                f"already take {(activations + logits + rows) / GIB:.2f} GiB; lower max_batch_tokens or "
                                "max_requests_per_batch, or raise max_memory_percent.")
    swap_slots = int(config.cpu_offload_space * GIB // block_bytes)
    sizing = Sizing(free_bytes, budget, num_blocks * block_bytes, num_blocks * per_block_index, activations, logits, rows, limited_by)
    return CacheLayout(groups, num_blocks, config.block_size, block_bytes, swap_slots), sizing
