"""One request and its life: PENDING → PREFILLING → DECODING → FINISHED, or CANCELLED, or FAILED."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from engine.sampling_params import SamplingParams


class RequestState(str, Enum):
    PENDING = "pending"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Request:
    """A prompt on its way through the engine.

    ``tokens`` is the prompt followed by every generated token the host knows. A step may have been launched whose
    sample has not come back yet; ``in_flight`` counts those (0 or 1), so that

        total_tokens = len(tokens) + in_flight

    is the number of positions that exist, and ``num_computed`` of them have their K/V in the cache (or are being
    written by a launched step). What is left, ``total_tokens - num_computed``, is what the scheduler may hand out.

    The original ``arrival`` and all ``token_times`` survive preemption, so TTFT and ITL are the true ones.
    """

    id: str
    ordinal: int                          # arrival order in the room; also picks the colour on screen
    tokens: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    prompt_text: str = ""
    arrival: float = 0.0                  # seconds on the room's clock
    arrival_step: int = 0
    parent: str | None = None             # for n > 1: the sibling whose prompt blocks this one forks from
    visitor: str | None = None            # who sent it, an opaque tag for limits; never a name
    seed: int = 0                         # the seed in force (explicit or derived)

    state: RequestState = RequestState.PENDING
    offloaded: bool = False
    num_computed: int = 0
    in_flight: int = 0
    tables: list[list[int]] = field(default_factory=list)        # per layer group: logical block -> physical block
    swap_slots: list[list[int]] = field(default_factory=list)    # per layer group, while offloaded
    block_hashes: list[bytes] = field(default_factory=list)      # chained hashes of the complete blocks so far
    num_registered_blocks: int = 0        # complete blocks whose hash the prefix cache has seen for this table
    covered: int = 0                      # positions the tables can hold without another block
    shares_tail: bool = False             # forked: a block it may write to can have another owner (copy on write)

    admitted: float | None = None         # time of the first admission
    first_token: float | None = None
    finished: float | None = None
    token_times: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None      # "stop", "length", "cancelled", or the sentence of a failure
    prefix_hit_tokens: int = 0
    num_offloads: int = 0
    num_soft_resets: int = 0
    holds_slot: bool = False              # static batching: finished, but its slot is kept until the batch is done

    @property
    def total_tokens(self) -> int:
        return len(self.tokens) + self.in_flight

    @property
    def num_output_tokens(self) -> int:
        """Generated tokens the host knows."""
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def last_position(self) -> int:
        """Positions that will ever be computed: the last output token is only read, never fed back."""
        return self.num_prompt_tokens + self.params.max_new_tokens - 1

    @property
    def remaining_tokens(self) -> int:
        """Positions to compute now: 1 while decoding, 0 when the last token is already on its way."""
        return min(len(self.tokens) + self.in_flight, self.last_position) - self.num_computed

    @property
    def max_total_tokens(self) -> int:
        """Prompt plus the longest allowed output."""
        return self.num_prompt_tokens + self.params.max_new_tokens

    @property
    def ended(self) -> bool:
        return self.finished is not None        # set in the one place where a request ends, with its terminal state
