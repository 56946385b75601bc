"""The frame all schedulers share: queues, budgets, and the way a step plan is filled.

``schedule`` serves running requests in the order of the subclass, then admits waiting ones, strictly in order of arrival.
Three decisions have a place each: admission (``admission.py``), allocation (:meth:`Scheduler._serve`, through
``PagedCache.extend``), preemption (``preemption.py`` and :meth:`Scheduler._relieve`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable

from engine.cache.paged_cache import PagedCache
from engine.config import EngineConfig
from engine.plan import DECODE, PREFILL, Slice, StepPlan
from engine.recorder import Recorder
from engine.request import Request, RequestState
from engine.scheduler import admission
from engine.scheduler.budget import Budget
from engine.scheduler.preemption import choose_victims
from engine.scheduler.reasons import Reason, Refusals

#: Called with a request that cannot go on even with the whole cache to itself.
FailRequest = Callable[[Request, str], None]


class Scheduler(ABC):
    """One room's scheduler. ``pending`` is ordered by arrival; ``active`` by admission.

    Invariant: a request that has not ended is in exactly one of ``pending`` and ``active``.
    """

    def __init__(self, config: EngineConfig, cache: PagedCache, recorder: Recorder, now: Callable[[], float],
                 fail: FailRequest, release_held_slots: Callable[[], None]) -> None:
        self.config = config
        self.cache = cache
        self.recorder = recorder
        self.now = now
        self.fail = fail
        self.release_held_slots = release_held_slots
        self.pending: list[Request] = []
        self.active: dict[str, Request] = {}
        self.requests: dict[str, Request] = {}      # all that have not ended, by id
        self.starved: dict[str, int] = {}           # id -> blocks it lacked in the last step
        self.promised = 0                           # blocks that admitted prompts have yet to take, while admitting
        self._budget = Budget(config, cache.layout)
        self._refusals = Refusals()
        self._preempted_now: set[str] = set()

    # -- queues -----------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        self.requests[request.id] = request
        self.pending.append(request)

    def forget(self, request: Request) -> None:
        """``request`` has ended: take it out of the queue or the batch."""
        self.requests.pop(request.id, None)
        self.starved.pop(request.id, None)
        if self.active.pop(request.id, None) is None:
            self.pending.remove(request)

    def requeue(self, request: Request) -> None:
        """A preempted request returns to the queue at the place of its original arrival."""
        del self.active[request.id]
        insort(self.pending, request, key=lambda other: other.ordinal)

    def adopt(self, other: Scheduler) -> None:
        """Take over the requests of the scheduler that was in force until now."""
        self.pending, self.active, self.requests, self.starved = other.pending, other.active, other.requests, other.starved

    @property
    def has_work(self) -> bool:
        return bool(self.pending or self.active)

    # -- one step ---------------------------------------------------------------------------------------------------

    def schedule(self, plan: StepPlan, can_preempt: bool = True) -> None:
        """Fill the plan of one step. Without slices, nothing can run now (copies it has must be done before the next).

        ``can_preempt`` is false while a launched step may still write to the blocks in question; then starved requests
        wait until it has been collected.
        """
        self.cache.swap.begin_step()
        self._preempted_now = set()
        if self.starved and can_preempt:
            self._relieve(plan)
        while True:
            self._fill(plan)
            if plan.slices or not can_preempt or not self.starved:
                break
            # Nothing could be scheduled at all: offload and try again within the same step. Each round takes at least one
            # request out of the batch, held static slots first, or fails the only one left, so this ends.
            self._relieve(plan)
        # Row order of the packed batch: rows of one token first (they share one attention call). The event lists them as
        # they are executed.
        plan.slices.sort(key=_many_tokens)
        self.recorder.set_waiting(self._refusals.to_dict())

    def _fill(self, plan: StepPlan) -> None:
        self._budget = Budget(self.config, self.cache.layout)
        self._refusals = Refusals()
        self.starved = {}
        self._serve(self.service_order(), plan)
        self.admit(plan)

    @abstractmethod
    def service_order(self) -> Iterable[Request]:
        """Running requests, most urgent first."""

    @property
    def budget(self) -> Budget:
        """What the last step spent."""
        return self._budget

    # -- allocation -------------------------------------------------------------------------------------------------

    def _serve(self, requests: Iterable[Request], plan: StepPlan) -> None:
        """Give each running request its tokens of this step, as far as budgets and blocks go."""
        budget, cache, slices, decoding = self._budget, self.cache, plan.slices, RequestState.DECODING
        for request in requests:
            start = request.num_computed
            remaining = request.remaining_tokens
            if remaining <= 0:
                continue            # its last token is on its way
            if (remaining == 1 and start < request.covered and request.state is decoding and not request.shares_tail
                    and budget.spend_on_decode(start)):
                # Nearly every row of a full batch: one token, and a block that has room for it. What follows below would come
                # to the same slice, by a longer way.
                request.num_computed = start + 1
                request.in_flight += 1
                slices.append(Slice(request, start, 1, DECODE, True))
                continue
            count = self._slice_length(request, start, remaining, plan)
            if count == 0:
                continue
            if (request.covered < start + count or request.shares_tail) and not cache.extend(request, start + count, plan):
                need = cache.blocks_to_extend(request, start + count)
                self.starved[request.id] = need
                self._refusals.refuse(request, Reason.STARVED, need, cache.num_free, cache.layout.num_blocks)
                continue
            slices.append(self._take(request, start, count, count == remaining))

    def _slice_length(self, request: Request, start: int, remaining: int, plan: StepPlan) -> int:
        """Tokens ``request`` may compute in this step; on 0 the refusal has been recorded."""
        budget, refuse = self._budget, self._refusals.refuse
        if budget.tokens <= 0:
            refuse(request, Reason.TOKEN_BUDGET, remaining, 0, budget.max_tokens)
            return 0
        kv_left = budget.kv - budget.kv_reads(start, 0)
        if kv_left <= 0:
            refuse(request, Reason.KV_READ_BUDGET, budget.kv_reads(start, 1), budget.kv, budget.max_kv)
            return 0
        count = min(remaining, budget.tokens, kv_left)
        if count < remaining and not self.config.chunked_prefill:
            # A prompt longer than any step can be cannot be whole: it takes whole steps for itself.
            alone = remaining > budget.max_tokens and not plan.slices
            if not alone:
                refuse(request, Reason.WHOLE_PROMPT, remaining, count, budget.max_tokens)
                return 0
        return count

    def _take(self, request: Request, start: int, count: int, samples: bool) -> Slice:
        """Spend the budget and advance ``request``; its blocks are in place."""
        self._budget.spend(start, count)
        request.num_computed = start + count
        if request.state is RequestState.DECODING:
            kind = DECODE
        else:
            kind = PREFILL
            if samples:
                self.recorder.transition(request, RequestState.DECODING, "prompt_done", self.now())
        if samples:
            request.in_flight += 1
        return Slice(request, start, count, kind, samples)

    # -- admission --------------------------------------------------------------------------------------------------

    def admit(self, plan: StepPlan) -> None:
        """Start waiting requests in order of arrival, until one may not start: it blocks those behind it."""
        if not self.pending:
            return
        self.promised = admission.promised_blocks(self, self.active.values())
        index = 0
        while index < len(self.pending):
            request = self.pending[index]
            if self._waits_for_sibling(request, plan):
                # The one stated exception from strict order: others may pass a fork, which costs them nothing.
                self._refusals.refuse(request, Reason.FORK_PARENT)
                index += 1
            elif self._try_admit(request, plan):
                del self.pending[index]
            else:
                self._refusals.block_queue(request, len(self.pending) - index - 1)
                return

    def _waits_for_sibling(self, request: Request, plan: StepPlan) -> bool:
        parent = self.requests.get(request.parent) if request.parent else None
        if parent is None or request.offloaded or request.num_computed or request.num_output_tokens:
            return False
        # Block copies come before the forward pass, so a prompt that this very step completes cannot be copied yet.
        return (parent.num_computed < request.num_prompt_tokens
                or any(piece.request is parent and piece.start < request.num_prompt_tokens for piece in plan.slices))

    def _try_admit(self, request: Request, plan: StepPlan) -> bool:
        refuse, cache, budget = self._refusals.refuse, self.cache, self._budget
        if request.id in self._preempted_now:
            refuse(request, Reason.NO_FREE_BLOCK, cache.layout.blocks_needed(request.total_tokens), 0, cache.layout.num_blocks)
            return False
        if budget.tokens <= 0:
            refuse(request, Reason.TOKEN_BUDGET, request.remaining_tokens, 0, budget.max_tokens)
            return False
        no = admission.closed_door(self, request)
        if no is not None:
            refuse(request, *no)
            return False
        parent = self.requests.get(request.parent) if request.parent else None
        fork = (parent is not None and not request.offloaded and request.num_output_tokens == 0
                and cache.can_fork(parent, request.num_prompt_tokens))
        prefix = [] if fork or request.offloaded else cache.match_prefix(request)
        no = admission.refusal(self, request, prefix, fork)
        if no is not None:
            refuse(request, *no)
            return False
        start = request.num_prompt_tokens - 1 if fork else request.num_computed if request.offloaded else \
            len(prefix) * cache.layout.block_size
        count = self._slice_length(request, start, min(request.total_tokens, request.last_position) - start, plan)
        if count == 0:
            return False
        self._start(request, prefix, parent if fork else None, plan)
        if not cache.extend(request, start + count, plan):
            raise AssertionError(f"admission promised {request.id} blocks that were not there")
        plan.slices.append(self._take(request, start, count, request.remaining_tokens == count))
        self.promised += admission.promised_blocks(self, (request,))
        return True

    def _start(self, request: Request, prefix: list[int], fork_from: Request | None, plan: StepPlan) -> None:
        """Move an admissible request into the batch, with whatever cache content it can start from."""
        now = self.now()
        self.active[request.id] = request
        if request.offloaded:
            request.offloaded = False
            blocks = self.cache.swap_in(request, plan)
            self.recorder.count("restores")
            self.recorder.count("swap_bytes_in", blocks * self.cache.layout.block_bytes)
            self.recorder.transition(request, request.state, "restore", now, blocks=blocks)
            return
        if request.admitted is None:
            request.admitted = now
        self.recorder.transition(request, RequestState.PREFILLING, "admitted", now)
        if fork_from is not None:
            self.cache.fork(fork_from, request)
        else:
            if self.cache.sharing:
                self.recorder.count("prefix_query_tokens", request.total_tokens)
            if prefix:
                self.cache.share_prefix(request, prefix)

    # -- preemption -------------------------------------------------------------------------------------------------

    def _relieve(self, plan: StepPlan) -> None:
        """Serve the starved requests of the last fill: offload the newest, as few as the demand needs, in one go."""
        starved = {name: self.cache.blocks_to_extend(self.active[name], self._wanted_end(self.active[name]))
                   for name in self.starved if name in self.active}
        self.starved = {}
        victims, demand = choose_victims(self.active.values(), starved, self.cache)
        for victim in victims:
            self._preempt(victim, [name for name in starved if name != victim.id], demand, plan)
        if victims or demand <= self.cache.num_free:
            return
        if any(request.holds_slot for request in self.active.values()):
            # A static batch that was taken over from another scheduler may not fit at its full length.
            self.release_held_slots()
        else:
            name = max(starved, key=lambda one: self.active[one].ordinal)
            self.fail(self.active[name], f"This request needs {starved[name]} more cache blocks and only {self.cache.num_free} are free, with "
                      "nobody else left to give way; use a shorter prompt, fewer new tokens, or a larger cache.")

    def _wanted_end(self, request: Request) -> int:
        return request.num_computed + min(request.remaining_tokens, self.config.max_batch_tokens)

    def _preempt(self, victim: Request, beneficiaries: list[str], demand: int, plan: StepPlan) -> None:
        """Take all blocks of ``victim``: to host memory when they fit there, else by soft reset."""
        now, cache = self.now(), self.cache
        self._preempted_now.add(victim.id)
        blocks = sum(map(len, victim.tables))
        self.requeue(victim)
        if blocks <= cache.swap.num_free:
            victim.offloaded = True
            victim.num_offloads += 1
            cache.swap_out(victim, plan)
            self.recorder.count("offloads")
            self.recorder.count("swap_bytes_out", blocks * cache.layout.block_bytes)
            self.recorder.transition(victim, victim.state, "offload", now, blocks=blocks, demand=demand, **{"for": beneficiaries})
        else:
            cache.release(victim)
            self.soft_reset(victim, "soft_reset", blocks=blocks, demand=demand, **{"for": beneficiaries})

    def soft_reset(self, request: Request, cause: str, **details: object) -> None:
        """Generated tokens join the prompt and everything is computed again; its blocks have been released."""
        self.recorder.count("recomputed_tokens", request.num_computed)
        if cause == "soft_reset":
            request.num_soft_resets += 1
            self.recorder.count("soft_resets")
        request.num_computed = 0
        request.offloaded = False
        self.recorder.transition(request, RequestState.PENDING, cause, self.now(), **details)


def _many_tokens(piece: Slice) -> bool:
    return piece.count > 1
