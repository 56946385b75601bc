"""Static batching, the baseline: a fixed batch is gathered and kept until its slowest member is done.

Decoding starts when every prompt of the batch is computed. A member that has finished keeps its slot and its blocks, and its
row goes on being computed as padding and thrown away: that is what a static batch costs.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.plan import PADDING, Slice, StepPlan
from engine.request import Request, RequestState
from engine.scheduler.base import Scheduler
from engine.scheduler.fifo import split_by_state
from engine.scheduler.reasons import Reason


class StaticScheduler(Scheduler):
    def service_order(self) -> Iterable[Request]:
        decoding, prefilling = split_by_state(request for request in self.active.values() if not request.holds_slot)
        if prefilling:
            for request in decoding:
                self._refusals.refuse(request, Reason.STATIC_BARRIER)
            return prefilling
        return decoding

    def _serve(self, requests: Iterable[Request], plan: StepPlan) -> None:
        super()._serve(requests, plan)
        if plan.slices and all(piece.samples and piece.kind == "decode" for piece in plan.slices):
            self._compute_finished_slots(plan)

    def _compute_finished_slots(self, plan: StepPlan) -> None:
        """Rows of finished members: real work, real reads, written to the padding block, result discarded."""
        for request in self.active.values():
            start = request.num_computed
            if request.holds_slot and self._budget.tokens > 0 and self._budget.kv >= self._budget.kv_reads(start, 1):
                self._budget.spend(start, 1)
                self.recorder.count("padding_tokens")
                plan.slices.append(Slice(request, start, 1, PADDING, False))

    def admit(self, plan: StepPlan) -> None:
        """A new batch is gathered only when the last one has left; each member's whole length must fit at once."""
        if self.active:
            if self.pending:
                head = self.pending[0]
                self._refusals.refuse(head, Reason.STATIC_BARRIER, 1, 0, self.config.max_requests_per_batch)
                self._refusals.block_queue(head, len(self.pending) - 1)
            return
        layout = self.cache.layout
        free = self.cache.num_free
        while self.pending:
            request = self.pending[0]
            need = layout.blocks_needed(request.last_position)
            if len(self.active) >= self.config.max_requests_per_batch:
                self._refusals.refuse(request, Reason.REQUEST_CAP, 1, 0, self.config.max_requests_per_batch)
            elif need > free:
                self._refusals.refuse(request, Reason.NO_FREE_BLOCK, need, free, layout.num_blocks)
            else:
                free -= need
                del self.pending[0]
                self._start(request, [], None, plan)
                continue
            self._refusals.block_queue(request, len(self.pending) - 1)
            break
        super()._serve([request for request in self.active.values() if request.state is RequestState.PREFILLING
                        or request.remaining_tokens > 0], plan)
