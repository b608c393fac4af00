"""vLLM V1's scheduler with its decodes kept as sums, so that a step costs what changes in it and not what runs.

Decides exactly as ``VllmV1`` does, whose code still makes every decision that is not plain: when tokens or KV blocks
do not suffice for all that runs, the sums are written back into the requests and the plain scheduler takes the step.
"""

from __future__ import annotations

from sim.engine.kv_cache import KvCache
from sim.engine.protocol import DecodeRun, Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.steady import SteadyBatch
from sim.engine.versions import VllmV1Rules
from sim.engine.vllm_v1 import Step, VllmV1
from sim.engine.worklist import step_work
from sim.work import StepWork

RUNNING = Status.RUNNING
NO_WORK = StepWork((), 0, 0)


class FastVllmV1(VllmV1):
    """For models whose layers share one KV block table."""

    cache: KvCache

    def __init__(self, rules: VllmV1Rules, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(rules, settings, windows)
        self.steady = SteadyBatch(
            settings.block_tokens,
            windows,
            steps_ahead=self.steps_in_flight - 1,
            named=self.cache.caching,
        )
        self._rest: list[Request] = []
        """Running requests that are not in the steady batch, in order of admission: prompts not yet computed."""
        self._no_blocks = [0] * settings.block_tokens
        self._in_flight: dict[int, Plan] = {}
        """Plans not completed, by number, that name requests."""
        self._named_late: set[int] = set()
        """Those of them that were made without names."""

    def schedule(self) -> Plan:
        """Decide the next step."""
        steady = self.steady
        number = steady.scheduled + 1
        steady.drop(number)
        step = self._continue_all(number)
        if step is None:
            return self._plainly()
        if self.waiting and step.budget > 0:
            self._admit(step)
        members, context_tokens = steady.count, steady.context_tokens(number)
        windows = steady.window_tokens(number)
        chunks, contexts, sampled = self._commit_tokens(step.scheduled)
        work = step_work(
            chunks,
            contexts,
            self._windows,
            len(sampled) + members,
            sequences=members,
            context_tokens=context_tokens,
            window_tokens=windows,
        )
        plan = Plan(step.scheduled, step.admitted, step.preempted, sampled, work, members, number)
        if not plan.empty:
            self._made(plan)
        return plan

    def _continue_all(self, number: int) -> Step | None:
        """Give everything that runs its tokens and blocks; None if they do not suffice, or it matters who is first."""
        steady, cache = self.steady, self.cache
        step = Step(self.settings.max_batched_tokens - steady.count, 0)
        if step.budget < 0:
            return None
        blocks = steady.blocks_due[number % steady.block_tokens]
        if self._rest or self.waiting:
            step.threshold = self._threshold()
        if self._rest and not self._continue_rest(step, blocks):
            return None
        if blocks:
            if blocks > cache.pool.free:
                return None
            cache.take_due(steady, number)
        if cache.caching and not self.settings.async_scheduling:
            cache.register_due(steady, number)
        for request, tokens in step.scheduled:
            if request.computed_tokens + tokens >= request.visit_at:
                cache.extend(request, request.computed_tokens + tokens)
        return step

    def _continue_rest(self, step: Step, blocks: int) -> bool:
        """Chunks of the prompts in progress, if they and ``blocks`` fit whatever the order."""
        highest, free = self.steady.highest_rank, self.cache.pool.free
        for request in self._rest:
            computed = request.computed_tokens
            tokens = min(request.known_tokens + request.placeholders - computed, step.threshold)
            if tokens > step.budget:
                if request.rank < highest:
                    return False
                tokens = step.budget
            tokens = min(tokens, request.most_computed_tokens - computed)
            if tokens <= 0:
                continue
            blocks += self.cache.missing(request, computed + tokens)
            if blocks > free:
                return False
            step.scheduled.append((request, tokens))
            step.budget -= tokens
        return True

    def _plainly(self) -> Plan:
        """A step by the plain scheduler."""
        self._settle_all()
        plan = super().schedule()
        plan.number = self.steady.scheduled + (not plan.empty)
        self._rest = list(self.running)
        if not plan.empty:
            self._made(plan)
        return plan

    def _made(self, plan: Plan) -> None:
        """The plan is final: what sampled is steady from the next step on."""
        steady = self.steady
        steady.scheduled = plan.number
        if plan.scheduled:
            self._in_flight[plan.number] = plan
        for request in plan.sampled:
            steady.join(request)
        if plan.scheduled:
            self._rest = [request for request in self.running if not request.serial]

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result."""
        steady, caching = self.steady, self.cache.caching
        asynchronous = self.settings.async_scheduling
        plan = self._in_flight.pop(plan.number, plan)
        self._named_late.discard(plan.number)
        steady.completed = plan.number
        emitted: list[Request] = []
        finished: list[Request] = []
        others = steady.streaming
        for request in plan.sampled:
            if request.status is not RUNNING and request.ended:
                continue
            emitted.append(request)
            if request.serial:
                steady.streaming += request.joined_at == plan.number
                continue
            request.known_tokens += 1
            if asynchronous:
                request.placeholders -= 1
            if request.known_tokens >= request.final_tokens:
                finished.append(request)
        if asynchronous and caching:
            self.cache.register_due(steady, plan.number)
        if steady.ends_now():
            finished += steady.ended()
        if finished:
            self._end_all(finished)
        return Outcome(emitted, finished, others)

    def _end_all(self, finished: list[Request]) -> None:
        if len(finished) > 1:
            finished.sort(key=lambda request: request.rank)
        for request in finished:
            if request.status is RUNNING:
                self.running.remove(request)
                self.cache.settle(request)
            self._end(request)

    def decode_run(self) -> DecodeRun | None:
        """Until a member leaves or ends, or the KV blocks run out."""
        steady = self.steady
        number = steady.scheduled + 1
        steady.drop(number)
        if self._rest or not steady.count or self._named_late:
            return None
        budget = self.settings.max_batched_tokens - steady.count
        if budget < 0 or (self.waiting and budget and len(self.running) < self._most_running):
            return None
        steps = min(steady.last_unchanged() - steady.scheduled, self._affordable(number))
        if steps <= 0:
            return None
        return DecodeRun(
            steady.count,
            number,
            steps,
            steady.context_tokens(number),
            self.kv_blocks_used,
            self._no_blocks if self.cache.pool.usable is None else steady.blocks_due,
            steady.block_tokens,
            steady.window_tokens,
        )

    def _affordable(self, number: int) -> int:
        """Steps from this one on for whose blocks the free ones suffice."""
        steady, free = self.steady, self.cache.pool.free
        rounds, left = divmod(free, steady.count)
        steps = 0
        while steps < steady.block_tokens:
            left -= steady.blocks_due[(number + steps) % steady.block_tokens]
            if left < 0:
                break
            steps += 1
        return rounds * steady.block_tokens + steps

    def decoded(self, scheduled: int, completed: int) -> None:
        """Steps of a run: take and register their blocks."""
        steady, cache = self.steady, self.cache
        first, last = steady.scheduled + 1, steady.scheduled + scheduled
        cache.take_run(steady, first, last)
        if cache.caching:
            if self.settings.async_scheduling:
                first, last = steady.completed + 1, steady.completed + completed
            for number in range(first, last + 1):
                cache.register_due(steady, number)
        steady.scheduled += scheduled
        steady.completed += completed

    def steady_plan(self) -> Plan:
        """Made when it is asked for, unless its requests had to be named."""
        number = self.steady.completed + 1
        return self._in_flight.get(number) or Plan([], [], [], [], NO_WORK, 1, number)

    def settle(self) -> None:
        """Write the sums back into the requests."""
        self._settle_all()

    def abort(self, request: Request) -> None:
        """A client gave up."""
        if request.serial:
            self.steady.settle(request)
            self.cache.settle(request)
        super().abort(request)
        self._rest = [left for left in self._rest if left is not request]

    def listed(self, plan: Plan) -> list[tuple[Request, int]]:
        """All that a plan schedules, in the engine's order."""
        return sorted([*plan.scheduled, *((member, 1) for member in self._members(plan))], key=lambda e: e[0].rank)

    def computed_tokens(self, request: Request) -> int:
        """What is computed of a running request, with the steps in flight."""
        if not request.serial:
            return request.computed_tokens
        return request.computed_tokens + min(self.steady.scheduled, request.leaves_at) - request.joined_at

    def _members(self, plan: Plan) -> list[Request]:
        return [
            request
            for request in self.running
            if request.serial and request.joined_at < plan.number <= request.leaves_at
        ]

    def _settle_all(self) -> None:
        """Write the sums back into the requests, and name those in the plans in flight."""
        for number in range(self.steady.completed + 1, self.steady.scheduled + 1):
            plan = self._in_flight.get(number)
            if plan is None:
                plan = self._in_flight[number] = Plan([], [], [], [], NO_WORK, number=number)
                self._named_late.add(number)
            plan.scheduled = self.listed(plan)
            plan.sampled = sorted([*plan.sampled, *self._members(plan)], key=lambda request: request.rank)
            plan.steady = 0
        for request in self.running:
            if request.serial:
                self.steady.settle(request)
                self.cache.settle(request)
        self.steady.clear()
