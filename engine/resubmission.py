"""After a failed step: an unfinished request goes on in a new engine, with what it has generated as the end of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import RequestRefused
from engine.request import Request
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from engine.rooms import Room


def queue_again(room: Room, request: Request) -> bool:
    """Queue a request of a lost engine in ``room``'s new one; False when the new one refuses it.

    The seed is the one that was in force, so a sampled answer does not change its dice.
    """
    left = max(0, request.params.max_new_tokens - request.num_output_tokens)
    owed = max(0, request.params.min_new_tokens - request.num_output_tokens)
    params = SamplingParams.from_dict(
        {**request.params.to_dict(), "max_new_tokens": left, "min_new_tokens": owed, "seed": request.seed, "n": 1})
    try:
        room.submit(list(request.tokens), params, prompt_text=request.prompt_text + request.text, visitor=request.visitor)
    except RequestRefused:
        return False
    return True


def first_line(problem: Exception) -> str:
    """What an exception says, short enough for a sentence on a screen."""
    return (str(problem).splitlines() or [""])[0][:200] or "no message"
