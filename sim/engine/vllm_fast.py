"""vLLM V1's scheduler with its decodes kept as sums, so that a step costs what changes in it and not what runs.

Decides exactly as ``VllmV1`` does, whose code still makes every decision that is not plain: when tokens or KV blocks
do not suffice for all that runs, the sums are written back into the requests and the plain scheduler takes the step.
"""

from __future__ import annotations

from operator import attrgetter

from sim.engine.kv_cache import KvCache
from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.steady import SteadyBatch
from sim.engine.versions import VllmV1Rules
from sim.engine.vllm_v1 import Step, VllmV1
from sim.engine.worklist import step_work
from sim.work import PrefillChunk, StepWork

RUNNING, FINISHED = Status.RUNNING, Status.FINISHED
_rank = attrgetter("rank")
NOBODY: list[Request] = []


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
        limited = self.cache.pool.usable is not None
        self.blocks_due = self.steady.blocks_due if limited else [0] * settings.block_tokens
        self._in_flight: dict[int, Plan] = {}
        """Plans not completed, by number, that name requests."""
        self._prompts: dict[int, list[Request]] = {}
        """Requests of further plans in flight whose whole prompts they compute."""
        self._named_late: set[int] = set()
        """Plans that were made without names, and named later."""

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
        windows = steady.window_tokens(number) if self._windows else ()
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
        if not plan.empty:
            self._made(plan)
        self._rest = [request for request in self.running if not request.serial]
        return plan

    def _made(self, plan: Plan) -> None:
        """The plan is final: what sampled is steady from the next step on."""
        steady = self.steady
        steady.scheduled = plan.number
        if plan.scheduled:
            self._in_flight[plan.number] = plan
        for request in plan.sampled:
            steady.join(request)
        if self._rest or plan.admitted:
            candidates = [*self._rest, *(request for request, _, _ in plan.admitted)]
            self._rest = [request for request in candidates if not request.serial]

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
        finished += steady.ended()
        if finished:
            self._end_all(finished)
        return Outcome(emitted, finished, others)

    def _end_all(self, finished: list[Request]) -> None:
        if len(finished) > 1:
            finished.sort(key=_rank)
        for request in finished:
            if request.status is RUNNING:
                self.running.remove(request)
                self.cache.settle(request)
            self._end(request)

    def last_known_step(self) -> int:
        """Until a member leaves, or the KV blocks run out."""
        steady = self.steady
        number = steady.scheduled + 1
        steady.drop(number)
        count = steady.count
        if not count or self._rest or self._named_late:
            return 0
        budget = self.settings.max_batched_tokens - count
        if budget < 0 or (self.waiting and budget and len(self.running) < self._most_running):
            return 0
        return self._affordable(number, steady.last_unchanged())

    def take_prompts(self) -> list[Request] | None:
        """Schedule a step of the steady batch and of whole prompts that wait; returns the requests they are of.

        None, with nothing decided, if the next step is anything else: a chunk of a prompt, a prefix hit, a preemption.
        """
        steady, settings, running, pool = self.steady, self.settings, self.running, self.cache.pool
        number = steady.scheduled + 1
        steady.drop(number)
        room, blocks = settings.max_batched_tokens - steady.count, self.blocks_due[number % steady.block_tokens]
        if self._rest or self._named_late or self.cache.caching or room < 0 or blocks > pool.free:
            return None
        threshold, seats, watermark = self._threshold(), self._most_running - len(running), self.cache.watermark
        admitted: list[Request] = []
        for request in self.waiting:
            tokens = request.known_tokens
            if not room or len(admitted) == seats:
                break
            if tokens > room or tokens > threshold:
                return None
            needed = -(-tokens // steady.block_tokens)
            if blocks + needed + (watermark if running or admitted else 0) > pool.free:
                break
            room -= tokens
            blocks += needed
            admitted.append(request)
        if not admitted:
            return None
        pool.take_count(blocks)
        steady.scheduled = number
        for request in admitted:
            self.waiting.take()
            request.status = RUNNING
            request.rank = self._admissions = self._admissions + 1
            request.computed_tokens = request.known_tokens
            running.append(request)
            steady.join(request)
        self._prompts[number] = admitted
        return admitted

    def _affordable(self, number: int, last: int) -> int:
        """The last of these steps for whose blocks the free ones suffice."""
        steady, free = self.steady, self.cache.pool.free
        if ((last - number) // steady.block_tokens + 1) * steady.count <= free:
            return last
        rounds, left = divmod(free, steady.count)
        fits = number + rounds * steady.block_tokens
        while fits <= last:
            left -= steady.blocks_due[fits % steady.block_tokens]
            if left < 0:
                break
            fits += 1
        return min(fits - 1, last)

    def decoded(self, scheduled: int, completed: int, blocks: int) -> None:
        """Steps of a run: take and register their blocks."""
        steady, cache = self.steady, self.cache
        if not cache.caching:
            cache.pool.take_count(blocks)
        else:
            first, last = steady.scheduled + 1, steady.scheduled + scheduled
            for number in range(first, last + 1):
                cache.take_due(steady, number)
            if self.settings.async_scheduling:
                first, last = steady.completed + 1, steady.completed + completed
            for number in range(first, last + 1):
                cache.register_due(steady, number)
        steady.scheduled += scheduled
        steady.completed += completed

    def complete_steady(self) -> tuple[list[Request], list[Request]] | None:
        """Complete the oldest step in flight, made by ``decoded`` or ``take_prompts``: first tokens, and what ended.

        None, with nothing done, if its requests had to be named meanwhile: ``complete`` takes its ``steady_plan``.
        """
        steady = self.steady
        number = steady.completed + 1
        if self._named_late:
            return None
        steady.completed = number
        prompts = self._prompts.pop(number, NOBODY)
        if prompts:
            prompts = [request for request in prompts if request.serial]
            steady.streaming += len(prompts)
        if self.cache.caching and self.settings.async_scheduling:
            self.cache.register_due(steady, number)
        ended = steady.ended()
        if ended:
            if len(ended) > 1:
                ended.sort(key=_rank)
            for request in ended:
                self.running.remove(request)
                self.cache.settle(request)
                self.cache.release(request)
                request.status = FINISHED
        return prompts, ended

    def steady_plan(self) -> Plan:
        """The plan of the oldest step in flight, where it was made by ``decoded`` or ``take_prompts``."""
        return self._in_flight[self.steady.completed + 1]

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
                prompts = self._prompts.pop(number, [])
                plan = self._in_flight[number] = _named(prompts, number)
                self._named_late.add(number)
            plan.scheduled = self.listed(plan)
            plan.sampled = sorted([*plan.sampled, *self._members(plan)], key=lambda request: request.rank)
            plan.steady = 0
        for request in self.running:
            if request.serial:
                self.steady.settle(request)
                self.cache.settle(request)
        self.steady.clear()


def _named(prompts: list[Request], number: int) -> Plan:
    """The plan of a step in flight that was made without one; its steady batch is still to be named."""
    scheduled = [(request, request.computed_tokens) for request in prompts]
    chunks = tuple(PrefillChunk(tokens, 0) for _, tokens in scheduled)
    return Plan(scheduled, [], [], prompts, StepWork(chunks, 0, 0), number=number)
