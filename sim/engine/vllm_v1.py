"""vLLM's V1 scheduler (0.9 to 0.33), decision by decision.

There is no prefill or decode phase: each step gives every request tokens so that what is computed catches up with
what is known. Running requests come first, in order of admission; then, if nothing was preempted, waiting ones until
the first that does not fit. When blocks run out the last running request (fcfs) or the least important one (priority)
is preempted: its blocks are freed, and it recomputes prompt and output when it is admitted again.
"""

from __future__ import annotations

from sim.engine.base import QueueEngine
from sim.engine.cache.kv_cache import KvCache
from sim.engine.cache.run_cache import RunCache
from sim.engine.cache.window_cache import WindowCache
from sim.engine.protocol import Outcome, Plan
from sim.engine.queues import FcfsQueue, PriorityQueue
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.speculation import Draws, Speculation
from sim.engine.step import Step
from sim.engine.versions import VllmV1Rules
from sim.engine.worklist import step_work

__all__ = ["Step", "VllmV1"]

RUNNING, PREEMPTED = Status.RUNNING, Status.PREEMPTED


class VllmV1(QueueEngine):
    """One engine core: scheduler, waiting queue, running list and KV cache."""

    def __init__(
        self,
        rules: VllmV1Rules,
        settings: EngineSettings,
        windows: tuple[int, ...] = (),
        draws: Draws | None = None,
    ) -> None:
        """``draws`` replaces the random acceptance of drafts (a recorded trace's pattern)."""
        self._priority = settings.policy == "priority"
        super().__init__(
            settings,
            windows,
            steps_in_flight=2 if settings.async_scheduling else 1,
            waiting=PriorityQueue() if self._priority else FcfsQueue(),
        )
        self.cache: KvCache | WindowCache | RunCache = _cache(rules, settings)
        self._caching = self.cache.caching
        self._admissions = 0
        self._rules = rules
        chosen = settings.speculation
        self._speculation = None if chosen is None else Speculation(chosen, draws)
        self._extra = 0 if chosen is None else chosen.extra_input_tokens
        """Budget that a request takes beyond its tokens."""
        self._most_running = settings.max_active_sequences or settings.max_sequences

    @property
    def kv_blocks_used(self) -> int:
        return self.cache.pool.used

    def longest_request_tokens(self) -> int | None:
        """A request of P + O tokens computes P + O - 1; asynchronous steps take blocks one token ahead.

        With speculation its last step may hold drafts and look-ahead beyond them, though never past max_model_len.
        """
        longest = self.cache.longest_computed_tokens()
        if self._speculation is not None and longest is not None and longest < self.settings.max_model_len:
            return longest + 1 - self._speculation.tokens - self.settings.lookahead_tokens
        return longest if longest is None or self.settings.async_scheduling else longest + 1

    def add(self, request: Request) -> None:
        """A request arrives."""
        super().add(request)
        if self._speculation is not None:
            request.most_computed_tokens = self.settings.max_model_len - 1

    def cached_tokens(self, request: Request) -> int:
        return self.cache.hit(request).tokens

    def schedule(self) -> Plan:
        """Decide the next step."""
        step = Step(self.settings.max_batched_tokens, self._threshold())
        self._schedule_running(step)
        if not step.preempted:
            self._admit(step)
        if self.settings.async_scheduling and self.cache.windowed:
            for request, tokens in step.scheduled:
                request.in_flight_tokens += tokens
        return self._commit(step) if self._speculation is None else self._commit_drafts(step)

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result: one new token for every request that sampled, and the end of those that are done.

        With speculation, the accepted drafts come before it.
        """
        if self._speculation is not None:
            return self._complete_verification(self._speculation, plan)
        emitted: list[Request] = []
        finished: list[Request] = []
        asynchronous, caching = self.settings.async_scheduling, self.cache.caching
        if asynchronous and self.cache.windowed:
            for request, tokens in plan.scheduled:
                request.in_flight_tokens -= tokens
        for request in plan.sampled:
            if request.status is not RUNNING and request.ended:
                continue
            request.known_tokens = known = request.known_tokens + 1
            emitted.append(request)
            if asynchronous:
                request.placeholders -= 1
                if caching and request.status is RUNNING:
                    settled = request.computed_tokens - request.placeholders
                    if settled >= request.register_at:
                        self.cache.register(request, settled)
            if known >= request.final_tokens:
                finished.append(request)
                self._end(request)
        if finished:
            self.running = [request for request in self.running if request.status is RUNNING]
        return Outcome(emitted, finished)

    def _complete_verification(self, speculation: Speculation, plan: Plan) -> Outcome:
        emitted, tokens, verified = speculation.apply(plan)
        finished = [request for request in emitted if request.known_tokens >= request.final_tokens]
        for request in finished:
            self._end(request)
        if finished:
            self.running = [request for request in self.running if request.status is RUNNING]
        return Outcome(emitted, finished, tokens=tokens, verified=verified)

    def listed(self, plan: Plan) -> list[tuple[Request, int]]:
        """All that a plan schedules, in the engine's order."""
        return plan.scheduled

    def computed_tokens(self, request: Request) -> int:
        """What is computed of a running request, with the steps in flight."""
        return request.computed_tokens

    def _release(self, request: Request) -> None:
        self.cache.release(request)

    def _threshold(self) -> int:
        """Most tokens one request may get in this step, whatever budget is left."""
        settings, present = self.settings, len(self.running) + len(self.waiting)
        if self._rules.lone_request_ignores_threshold and present <= 1:
            return settings.max_model_len
        threshold = settings.long_prefill_threshold
        if settings.adaptive_long_prefill:
            threshold = max(threshold, settings.max_batched_tokens // max(present, 1))
        return threshold or settings.max_model_len

    def _schedule_running(self, step: Step) -> None:
        """Running requests, in list order: what is known and not computed, as far as budget and blocks allow."""
        scheduled, preempted, extra = step.scheduled, step.preempted, self._extra
        for request in self.running:
            if preempted and request.status is PREEMPTED:
                continue
            computed = request.computed_tokens
            tokens = request.known_tokens + request.placeholders + request.draft_tokens - computed
            if tokens != 1:
                tokens = min(tokens, step.threshold, step.budget - extra)
            end = computed + tokens
            if end > request.most_computed_tokens:
                end = request.most_computed_tokens
                tokens = end - computed
            if tokens <= 0:
                continue
            if end >= request.visit_at and not self._make_room(step, request, end):
                if self._priority and not self._rules.self_preemption_ends_step:
                    continue
                break
            scheduled.append((request, tokens))
            step.budget -= tokens + extra
            if step.budget <= extra:
                break
        if preempted:
            self.running = [request for request in self.running if request.status is RUNNING]

    def _make_room(self, step: Step, request: Request, end: int) -> bool:
        """Preempt until the request's blocks fit; False if it was the victim itself."""
        while not self.cache.extend(request, end):
            victim = self._victim()
            if self._priority:
                self._take_back(step, victim)
            self._preempt(step, victim)
            if victim is request:
                return False
        return True

    def _victim(self) -> Request:
        """The last running request (fcfs), or the least important one (priority)."""
        if self._priority:
            candidates = (request for request in self.running if request.status is RUNNING)
            return max(candidates, key=lambda request: (request.priority, request.order))
        return next(request for request in reversed(self.running) if request.status is RUNNING)

    def _take_back(self, step: Step, victim: Request) -> None:
        """A victim that had its turn in this step loses it again."""
        for index, (request, tokens) in enumerate(step.scheduled):
            if request is victim:
                del step.scheduled[index]
                step.budget += tokens + self._extra if self._rules.budget_returns else 0
                return

    def _preempt(self, step: Step, victim: Request) -> None:
        self.cache.release(victim)
        victim.computed_tokens = 0
        victim.draft_tokens = 0
        victim.status = PREEMPTED
        self.waiting.put_back(victim)
        step.preempted.append(victim)

    def _admit(self, step: Step) -> None:
        """Waiting requests, from the head, until one does not fit."""
        waiting, set_aside, extra = self.waiting, [], self._extra
        already_running = step.scheduled.copy() if self._speculation else []
        while len(waiting) and step.budget > extra and len(self.running) < self._most_running:
            request = waiting.head()
            hit = self.cache.hit(request)
            tokens = min(request.known_tokens - hit.tokens, step.threshold)
            if self._speculation is not None:
                padded = self._speculation.first_tokens(tokens, hit.tokens, already_running)
                if padded > tokens and padded > step.budget - extra:
                    break
                tokens = padded
            if tokens > step.budget - extra and not self.settings.chunked_prefill:
                if not self._rules.unfitting_prompt_is_set_aside:
                    break
                set_aside.append(waiting.take())
                continue
            tokens = min(tokens, step.budget - extra)
            if not self.cache.admit(request, hit, tokens, others_running=bool(self.running)):
                break
            waiting.take()
            self._start(step, request, tokens, hit.tokens)
        for request in reversed(set_aside):
            waiting.put_back(request)

    def _start(self, step: Step, request: Request, tokens: int, hit_tokens: int) -> None:
        self._begin(step, request, hit_tokens)
        self.running.append(request)
        request.rank = self._admissions = self._admissions + 1
        step.scheduled.append((request, tokens))
        step.budget -= tokens + self._extra

    def _commit_drafts(self, step: Step) -> Plan:
        """``_commit`` with speculation: drafts beside the decodes, and those that pad an admission."""
        drafts: dict[Request, tuple[int, bool]] = {}
        chunks, decode_contexts, sampled = self._commit_tokens(step.scheduled, drafts)
        rows = len(sampled) + sum(tokens for tokens, _ in drafts.values())
        decode_tokens = sum(tokens for _, tokens in step.scheduled) - sum(chunk.tokens for chunk in chunks)
        decode_drafts = decode_tokens - len(decode_contexts)
        work = step_work(chunks, decode_contexts, self._windows, rows, draft_tokens=decode_drafts)
        return Plan(step.scheduled, step.admitted, step.preempted, sampled, work, drafts=drafts)


def _cache(rules: VllmV1Rules, settings: EngineSettings) -> KvCache | WindowCache:
    """One block table for all layers, or one per group; blocks that never run out need no groups."""
    if settings.kv_groups == (None,) or settings.kv_blocks is None:
        return KvCache(settings, unhashed_first=rules.unhashed_blocks_first)
    return WindowCache(
        settings, unhashed_first=rules.unhashed_blocks_first, waits_for_steps=rules.windows_wait_for_steps
    )
