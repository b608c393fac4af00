"""vLLM V1's scheduler with its decodes kept as sums, so that a step costs what changes in it and not what runs.

Decides exactly as ``VllmV1`` does, whose code still makes every decision that is not plain: when tokens or KV blocks
do not suffice for all that runs, the sums are written back into the requests and the plain scheduler takes the step.
"""

from __future__ import annotations

from operator import attrgetter

from sim.engine.cache.kv_cache import KvCache
from sim.engine.cache.run_cache import RunCache
from sim.engine.protocol import Outcome, Plan, Prompts
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
ANSWER = "o:"
"""Begins the names of segments that are a request's output."""
new = tuple.__new__
"""Makes a NamedTuple without its Python-level constructor."""


class FastVllmV1(VllmV1):
    """For models whose layers share one KV block table."""

    cache: KvCache | RunCache

    def __init__(self, rules: VllmV1Rules, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(rules, settings, windows)
        if self.cache.caching:
            self.cache = RunCache(settings, unhashed_first=rules.unhashed_blocks_first)
        self.steady = SteadyBatch(settings.block_tokens, windows, steps_ahead=self.steps_in_flight - 1)
        self._rest: list[Request] = []
        """Running requests that are not in the steady batch, in order of admission: prompts not yet computed."""
        limited = self.cache.pool.usable is not None
        self.blocks_due = self.steady.blocks_due if limited else [0] * settings.block_tokens
        self._in_flight: dict[int, Plan] = {}
        """Plans not completed, by number, that name requests."""
        self._prompts: dict[int, list[Request]] = {}
        """Of steps in flight that were made as ``Prompts``, by number: the requests whose prompts they compute."""
        self._named_late: set[int] = set()
        """Those of ``_in_flight`` that were made without a plan, and got one when the plain scheduler took over."""
        self._answers_recur = False
        """Some prompt holds an answer, so that blocks which answers fill must be registered as they do."""
        self._completed_at_plan = 0
        """Steps that were completed when the last one was scheduled."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        super().add(request)
        if request.prompt is not None and self.cache.caching and not self._answers_recur:
            self._answers_recur = any(segment.startswith(ANSWER) for segment, _ in request.prompt)

    def schedule(self) -> Plan:
        """Decide the next step."""
        step = self._decide()
        return self._plainly() if step is None else self._plan(step)

    def next_step(self) -> Plan | Prompts:
        """``schedule``, without naming who decodes where the step computes whole prompts and no chunks."""
        step = self._decide()
        if step is None:
            return self._plainly()
        if self._rest or not step.scheduled or not all(map(_is_whole_prompt, step.scheduled)):
            return self._plan(step)
        steady = self.steady
        number = steady.scheduled + 1
        members, context_tokens = steady.count, steady.context_tokens(number)
        windows = steady.window_tokens(number) if self._windows else ()
        steady.scheduled = number
        self._completed_at_plan = steady.completed
        prompts, chunks = [], []
        for request, tokens in step.scheduled:
            chunks.append(new(PrefillChunk, (tokens, request.computed_tokens)))
            request.computed_tokens = request.known_tokens
            steady.join(request)
            prompts.append(request)
        self._prompts[number] = prompts
        work = new(StepWork, (tuple(chunks), members, context_tokens, windows, members + len(prompts), 0))
        return new(Prompts, (prompts, step.admitted, work))

    def _decide(self) -> Step | None:
        """What runs goes on, and what fits is admitted; None if that is for the plain scheduler to see to."""
        steady = self.steady
        number = steady.scheduled + 1
        steady.drop(number)
        step = self._continue_all(number)
        if step is not None and self.waiting and step.budget > 0:
            if self._answers_recur:
                self._register_filled(number)
            self._admit(step)
        return step

    def _plan(self, step: Step) -> Plan:
        steady = self.steady
        number = steady.scheduled + 1
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

    def _register_filled(self, number: int) -> None:
        """Blocks that answers have filled can be hit from now on: as far as this step goes, and tokens are known.

        What gets nothing in this step was registered when its last one was completed.
        """
        completed = self.steady.completed
        for request in self.running:
            if request.serial:
                joined = request.computed_tokens - request.joined_at
                filled = joined + min(completed, request.ends_at)
                if request.leaves_at >= number:
                    filled = min(joined + number, max(request.known_tokens, filled + 1))
                self.cache.register(request, filled)

    def _continue_all(self, number: int) -> Step | None:
        """Give everything that runs its tokens and blocks; None if they do not suffice, or it matters who is first."""
        steady, cache = self.steady, self.cache
        step = Step(self.settings.max_batched_tokens - steady.count, 0)
        if step.budget < 0:
            return None
        blocks = self.blocks_due[number % steady.block_tokens]
        if self._rest or self.waiting:
            step.threshold = self._threshold()
        if self._rest and not self._continue_rest(step, blocks):
            return None
        if blocks > cache.pool.free:
            return None
        cache.pool.take_count(blocks)
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
        self.settle()
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
        self._completed_at_plan = steady.completed
        if plan.scheduled:
            self._in_flight[plan.number] = plan
        for request in plan.sampled:
            steady.join(request)
        if self._rest or plan.admitted:
            candidates = [*self._rest, *(request for request, _, _ in plan.admitted)]
            self._rest = [request for request in candidates if not request.serial]

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result."""
        steady = self.steady
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
        if self._rest:
            self._rest = [request for request in self._rest if not request.ended]

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
        """Steps of a run: take their blocks."""
        self.cache.pool.take_count(blocks)
        self.steady.scheduled += scheduled
        self.steady.completed += completed
        self._completed_at_plan = self.steady.completed

    def complete_steady(self) -> tuple[list[Request], list[Request]] | None:
        """Complete the oldest step in flight, made by ``decoded`` or as ``Prompts``: first tokens, and what ended.

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
        """The plan of the oldest step in flight, where it was made by ``decoded`` or as ``Prompts``."""
        return self._in_flight[self.steady.completed + 1]

    def settle(self) -> None:
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

    def abort(self, request: Request) -> None:
        """A client gave up. What its last step could tell of its tokens is cached, as far as that step computes."""
        if request.serial:
            known = request.known_tokens
            if self.steady.scheduled <= request.leaves_at:
                known = max(known, self.steady.known_tokens(request, self._completed_at_plan))
            self.steady.settle(request)
            self.cache.settle(request)
            if self._caching:
                self.cache.register(request, min(known, request.computed_tokens))
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


def _is_whole_prompt(scheduled: tuple[Request, int]) -> bool:
    """Not a chunk of one, nor the one token that a resumed request lacks, which counts as a decode."""
    request, tokens = scheduled
    known = request.known_tokens
    return request.computed_tokens + tokens == known and (tokens > 1 or known == request.prompt_tokens)


def _named(prompts: list[Request], number: int) -> Plan:
    """The plan of a step in flight that was made without one; its steady batch is still to be named.

    It serves to complete the step, no more: its tokens include cached ones, its chunks only tell that there are any.
    """
    scheduled = [(request, request.computed_tokens) for request in prompts]
    chunks = tuple(PrefillChunk(tokens, 0) for _, tokens in scheduled)
    return Plan(scheduled, [], [], prompts, StepWork(chunks, 0, 0), number=number)
