"""The numbers of a model that sizing, scheduling and the simulated device need, with or without its weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shape of a decoder-only transformer.

    ``layer_types`` has one entry a layer, ``"full_attention"`` or ``"sliding_attention"``. ``num_params`` counts every
    weight; ``num_matmul_params`` those multiplied with each token in a forward pass (no input embedding table, but the
    LM head, which is ``hidden_size * vocab_size`` of them). ``active_params`` differs from it only for mixtures of experts.
    ``dtype_bytes`` is the width of weights and cache entries.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    num_params: int
    num_matmul_params: int
    layer_types: tuple[str, ...]
    sliding_window: int | None = None
    max_position: int | None = None
    dtype_bytes: int = 2
    active_params: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def kv_bytes_per_token_per_layer(self) -> int:
        """K and V of one token in one layer, bytes."""
        return 2 * self.num_kv_heads * self.head_dim * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of one token in all layers, bytes."""
        return self.num_layers * self.kv_bytes_per_token_per_layer

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["layer_types"] = list(self.layer_types)
        values["eos_token_ids"] = list(self.eos_token_ids)
        return values
