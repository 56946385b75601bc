"""The engine's own state, written out as the document that the event stream describes (see ``ARCHITECTURE.md``).

It is built from the live queues, tables and pools, never from the events: that is what makes comparing the two a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.recorder import rounded
from engine.request import Request

if TYPE_CHECKING:
    from engine.cache.layer_groups import CacheLayout
    from engine.cache.sizing import Sizing
    from engine.engine import Engine


def layout_document(layout: CacheLayout, sizing: Sizing) -> dict[str, Any]:
    return {
        "num_blocks": layout.num_blocks, "block_size": layout.block_size, "block_bytes": layout.block_bytes,
        "swap_slots": layout.num_swap_slots,
        "groups": [{"index": group.index, "kind": group.kind, "layers": list(group.layers), "window": group.window}
                   for group in layout.groups],
        "sizing": sizing.to_dict(),
    }


def request_document(request: Request) -> dict[str, Any]:
    def time(seconds: float | None) -> float | None:
        return None if seconds is None else rounded(seconds)

    return {
        "id": request.id, "ordinal": request.ordinal, "prompt": request.prompt_text, "prompt_len": request.num_prompt_tokens,
        "params": request.params.to_dict(), "arrival": rounded(request.arrival), "arrival_step": request.arrival_step,
        "parent": request.parent, "visitor": request.visitor, "state": request.state.value, "offloaded": request.offloaded,
        "computed": request.num_computed, "outputs": request.num_output_tokens, "text": request.text,
        "tables": [list(table) for table in request.tables], "slots": [list(slots) for slots in request.swap_slots],
        "admitted": time(request.admitted), "first_token": time(request.first_token), "finished": time(request.finished),
        "reason": request.finish_reason, "token_times": [rounded(moment) for moment in request.token_times],
        "prefix_hit_tokens": request.prefix_hit_tokens, "offloads": request.num_offloads,
        "soft_resets": request.num_soft_resets, "holds_slot": request.holds_slot,
    }


def state_document(engine: Engine) -> dict[str, Any]:
    recorder, scheduler, prefix = engine.recorder, engine.scheduler, engine.cache.prefix
    hashes = {}
    for block, known in prefix.known.items():
        parent = prefix.shorten(known.parent).hex() if known.parent else None
        hashes[str(block)] = [known.key.hex(), parent]
    return {
        "seq": recorder.seq, "step": engine.step_index, "time": recorder.last_time, "engine": dict(engine.status),
        "config": engine.config.to_dict(), "layout": layout_document(engine.cache.layout, engine.sizing),
        "requests": {name: request_document(request) for name, request in engine.requests.items()},
        "queue": [request.id for request in scheduler.pending], "active": list(scheduler.active),
        "ended": list(engine.ended), "hashes": hashes, "waiting": recorder.waiting, "last": recorder.last,
        "counters": dict(recorder.counters),
    }
