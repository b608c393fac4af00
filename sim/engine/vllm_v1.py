"""vLLM's V1 scheduler (0.9 to 0.33), decision by decision.

There is no prefill or decode phase: each step gives every request tokens so that what is computed catches up with
what is known. Running requests come first, in order of admission; then, if nothing was preempted, waiting ones until
the first that does not fit. When blocks run out the last running request (fcfs) or the least important one (priority)
is preempted: its blocks are freed, and it recomputes prompt and output when it is admitted again.
"""

from __future__ import annotations

from sim.engine.kv_cache import KvCache
from sim.engine.protocol import Outcome, Plan
from sim.engine.queues import FcfsQueue, PriorityQueue, WaitingQueue
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.versions import EngineRules
from sim.engine.worklist import Worklist


class VllmV1:
    """One engine core: scheduler, waiting queue, running list and KV cache."""

    def __init__(self, rules: EngineRules, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        self.settings = settings
        self.steps_in_flight = 2 if settings.async_scheduling else 1
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.cache = KvCache(settings, unhashed_first=rules.unhashed_blocks_first)
        self.waiting: WaitingQueue = PriorityQueue() if settings.policy == "priority" else FcfsQueue()
        self.running: list[Request] = []
        self._rules = rules
        self._windows = windows
        self._priority = settings.policy == "priority"
        self._most_running = settings.max_active_sequences or settings.max_sequences

    @property
    def unfinished(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def running_count(self) -> int:
        return len(self.running)

    @property
    def waiting_count(self) -> int:
        return len(self.waiting)

    @property
    def kv_blocks_used(self) -> int:
        return self.cache.pool.used

    def longest_request_tokens(self) -> int | None:
        """A request of P + O tokens holds P + O - 1 at its end; asynchronous steps take blocks one token ahead."""
        usable = self.cache.pool.usable
        if usable is None:
            return None
        return usable * self.cache.block_tokens + (0 if self.settings.async_scheduling else 1)

    def add(self, request: Request) -> None:
        """A request arrives."""
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """A client gave up: free what the request holds, now."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.cache.release(request)
        elif not request.ended:
            self.waiting.remove(request)
        request.status = Status.ABORTED

    def schedule(self) -> Plan:
        """Decide the next step."""
        step = _Step(self.settings.max_batched_tokens, self._threshold())
        self._schedule_running(step)
        if not step.preempted:
            self._admit(step)
        return self._commit(step)

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result: one new token for every request that sampled, and the end of those that are done."""
        emitted: list[Request] = []
        finished: list[Request] = []
        asynchronous = self.settings.async_scheduling
        max_model_len = self.settings.max_model_len
        for request in plan.sampled:
            if request.status is Status.FINISHED or request.status is Status.ABORTED:
                continue
            request.known_tokens += 1
            emitted.append(request)
            done = (
                request.known_tokens - request.prompt_tokens >= request.output_tokens
                or request.known_tokens >= max_model_len
            )
            if asynchronous:
                request.placeholders -= 1
                if self.cache.caching and request.status is Status.RUNNING:
                    self.cache.register(request, request.computed_tokens - request.placeholders)
            if done:
                finished.append(request)
                self._end(request)
        if finished:
            self.running = [request for request in self.running if request.status is Status.RUNNING]
        return Outcome(emitted, finished)

    def _end(self, request: Request) -> None:
        if request.status is Status.RUNNING:
            self.cache.release(request)
        else:
            self.waiting.remove(request)
        request.status = Status.FINISHED

    def _threshold(self) -> int | None:
        """Most tokens one request may get in this step, besides the budget."""
        settings, present = self.settings, len(self.running) + len(self.waiting)
        if self._rules.lone_request_ignores_threshold and present <= 1:
            return None
        threshold = settings.long_prefill_threshold
        if settings.adaptive_long_prefill:
            threshold = max(threshold, settings.max_batched_tokens // present)
        return threshold or None

    def _schedule_running(self, step: _Step) -> None:
        running, scheduled = self.running, step.scheduled
        last_position = self.settings.max_model_len - 1
        block_tokens = self.cache.block_tokens
        index = 0
        while index < len(running) and step.budget > 0:
            request = running[index]
            index += 1
            computed = request.computed_tokens
            tokens = request.known_tokens + request.placeholders - computed
            if request.placeholders and self._ends_in_flight(request):
                continue
            if tokens != 1:
                tokens = min(tokens, step.threshold or tokens, step.budget)
            tokens = min(tokens, last_position - computed)
            if tokens <= 0:
                continue
            if computed + tokens > request.block_count * block_tokens:
                index -= 1
                index, fits = self._make_room(step, request, computed + tokens, index)
                if not fits:
                    if self._priority and not self._rules.self_preemption_ends_step:
                        continue
                    break
                index += 1
            scheduled[request] = tokens
            step.budget -= tokens

    def _ends_in_flight(self, request: Request) -> bool:
        """The cap is reached by what is in flight: no extra step is scheduled."""
        return request.computed_tokens + 2 - request.placeholders >= request.prompt_tokens + request.max_output_tokens

    def _make_room(self, step: _Step, request: Request, computed_tokens: int, index: int) -> tuple[int, bool]:
        """Preempt until the request's blocks fit, or it was the victim itself; returns its place in the list."""
        while not self.cache.grow(request, computed_tokens):
            victim = self._victim()
            place = self.running.index(victim) if self._priority else len(self.running) - 1
            del self.running[place]
            if victim in step.scheduled:
                tokens = step.scheduled.pop(victim)
                if self._rules.budget_returns:
                    step.budget += tokens
            if place < index:
                index -= 1
            self._preempt(step, victim)
            if victim is request:
                return index, False
        return index, True

    def _victim(self) -> Request:
        if self._priority:
            return max(self.running, key=lambda request: (request.priority, request.order))
        return self.running[-1]

    def _preempt(self, step: _Step, victim: Request) -> None:
        self.cache.release(victim)
        victim.computed_tokens = 0
        victim.status = Status.PREEMPTED
        self.waiting.put_back(victim)
        step.preempted.append(victim)

    def _admit(self, step: _Step) -> None:
        """Waiting requests, from the head, until one does not fit."""
        waiting, set_aside = self.waiting, []
        while len(waiting) and step.budget > 0 and len(self.running) < self._most_running:
            request = waiting.head()
            hit = self.cache.hit(request)
            hit_tokens = len(hit) * self.cache.block_tokens
            tokens = request.known_tokens - hit_tokens
            tokens = min(tokens, step.threshold or tokens)
            if tokens > step.budget and not self.settings.chunked_prefill:
                if not self._rules.unfitting_prompt_is_set_aside:
                    break
                set_aside.append(waiting.pop())
                continue
            tokens = min(tokens, step.budget)
            if not self.cache.admit(request, hit, tokens, others_running=bool(self.running)):
                break
            waiting.pop()
            self._start(step, request, tokens, hit_tokens)
        for request in reversed(set_aside):
            waiting.put_back(request)

    def _start(self, step: _Step, request: Request, tokens: int, hit_tokens: int) -> None:
        resumed = request.status is Status.PREEMPTED
        if self.cache.caching and not resumed:
            self.prefix_queries += request.known_tokens
            self.prefix_hits += hit_tokens
        request.status = Status.RUNNING
        request.computed_tokens = hit_tokens
        self.running.append(request)
        step.admitted.append((request, hit_tokens, resumed))
        step.scheduled[request] = tokens
        step.budget -= tokens
        if self.cache.caching:
            # Registered at once: an equal prompt admitted in this very step already hits it.
            self.cache.register(request, min(hit_tokens + tokens, request.known_tokens))

    def _commit(self, step: _Step) -> Plan:
        """The step is decided: count its tokens as computed before it runs."""
        work = Worklist(self._windows)
        sampled: list[Request] = []
        caching, asynchronous = self.cache.caching, self.settings.async_scheduling
        for request, tokens in step.scheduled.items():
            before = request.computed_tokens
            known = request.known_tokens + request.placeholders
            request.computed_tokens = computed = before + tokens
            samples = computed == known
            if samples:
                sampled.append(request)
            work.add(tokens, before, samples=samples, decode=known > request.prompt_tokens)
            if caching and computed // self.cache.block_tokens > request.registered_blocks:
                self.cache.register(request, min(computed, request.known_tokens))
            if asynchronous and samples:
                request.placeholders += 1
        return Plan(list(step.scheduled.items()), step.admitted, step.preempted, sampled, work.step_work())


class _Step:
    """What is decided so far in one schedule() call."""

    __slots__ = ("admitted", "budget", "preempted", "scheduled", "threshold")

    def __init__(self, budget: int, threshold: int | None) -> None:
        self.budget = budget
        self.threshold = threshold
        self.scheduled: dict[Request, int] = {}
        self.preempted: list[Request] = []
        self.admitted: list[tuple[Request, int, bool]] = []
