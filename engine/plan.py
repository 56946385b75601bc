"""What the scheduler hands to the executor: the work of one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.request import Request

PREFILL, DECODE, PADDING = "prefill", "decode", "padding"


class Slice(NamedTuple):
    """``count`` query tokens of one request, at positions ``start`` … ``start + count - 1``.

    ``samples`` tells that the slice ends at the request's last known position, so its last row yields a new token.
    ``kind`` is ``"prefill"``, ``"decode"`` or ``"padding"``: the last is a static slot whose request has finished and
    that is computed and thrown away; it reads its own blocks and writes only to the reserved padding block.
    """

    request: Request
    start: int
    count: int
    kind: str
    samples: bool


@dataclass(slots=True)
class StepPlan:
    """One step: copies to do first, then the slices of one packed forward pass.

    The order is binding: ``swap_out`` (block → host slot), ``swap_in`` (slot → block), ``copies`` (block → block), then
    the forward pass. Blocks freed by a swap-out may already be owned by a slice of the same step, so the copy out must
    have read them before anything is written; slots freed by a swap-in are not reused within the step.
    """

    step: int
    slices: list[Slice] = field(default_factory=list)
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)

    @property
    def num_query_tokens(self) -> int:
        return sum(piece.count for piece in self.slices)

    @property
    def num_kv_tokens(self) -> int:
        """Cached tokens read by the step, its own new ones included."""
        return sum(piece.start + piece.count for piece in self.slices)

    @property
    def has_copies(self) -> bool:
        return bool(self.swap_out or self.swap_in or self.copies)
