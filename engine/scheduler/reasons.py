"""Why a request is not computed in a step: recorded at the branch that says no, never guessed afterwards."""

from __future__ import annotations

from enum import Enum
from typing import Any

from engine.request import Request


class Reason(str, Enum):
    TOKEN_BUDGET = "token_budget"          # max_batch_tokens is used up
    NO_FREE_BLOCK = "no_free_block"        # the cache cannot hold its known tokens beside what is promised to others
    SAFETY_MARGIN = "safety_margin"        # too few free blocks to start anybody new
    REQUEST_CAP = "request_cap"            # max_requests_per_batch is reached
    KV_READ_BUDGET = "kv_read_budget"      # max_kv_read_tokens is used up
    HEAD_OF_LINE = "head_of_line"          # somebody in front of it waits
    STATIC_BARRIER = "static_barrier"      # the static batch is not done
    ROOM_PAUSED = "room_paused"
    FORK_PARENT = "fork_parent"            # its sibling's prompt is still being computed
    WHOLE_PROMPT = "whole_prompt"          # chunked prefill is off and the prompt does not fit what is left of this step
    STARVED = "starved"                    # running, but no block for its next tokens


class Refusals:
    """The refusals of one step. Everybody behind ``behind`` waits with the reason ``head_of_line``."""

    def __init__(self) -> None:
        self.refused: list[dict[str, Any]] = []
        self.behind: str | None = None
        self.behind_count = 0

    def refuse(self, request: Request, reason: Reason, need: int = 0, have: int = 0, limit: int = 0) -> None:
        """``need``, ``have`` and ``limit`` are in the unit of the reason: tokens, blocks or requests."""
        self.refused.append({"id": request.id, "reason": reason.value, "need": need, "have": have, "limit": limit})

    def block_queue(self, request: Request, count_behind: int) -> None:
        """``request`` stays at the head, and ``count_behind`` requests behind it were not looked at."""
        self.behind, self.behind_count = request.id, count_behind

    def to_dict(self) -> dict[str, Any]:
        return {"refused": self.refused, "behind": self.behind, "behind_count": self.behind_count}
