"""What schedulers share that keep their decodes as sums: plans that name only what changes, and their completion.

Decisions that are not plain are left to the engine itself: the sums are written back into the requests, and it takes
the step as it would without them.
"""

from __future__ import annotations

from abc import abstractmethod

from sim.engine.base import QueueEngine
from sim.engine.protocol import Outcome, Plan, Prompts
from sim.engine.request import Request, Status
from sim.engine.steady import SteadyBatch
from sim.engine.step import Step
from sim.engine.worklist import step_work
from sim.work import PrefillChunk, StepWork

RUNNING, FINISHED = Status.RUNNING, Status.FINISHED
NOBODY: list[Request] = []
new = tuple.__new__
"""Makes a NamedTuple without its Python-level constructor."""


class SteadyEngine(QueueEngine):
    """Comes before the plain engine among the bases of a fast one, whose constructor calls ``_keep_sums``."""

    steady: SteadyBatch
    blocks_due: list[int]

    def _keep_sums(self, steady: SteadyBatch, blocks_due: list[int] | None) -> None:
        """``blocks_due``: as in ``Foresight``; None where blocks are not counted."""
        self.steady = steady
        self.blocks_due = [0] * steady.block_tokens if blocks_due is None else blocks_due
        self._rest: list[Request] = []
        """Running requests that are not in the steady batch, in the engine's order: prompts not yet computed."""
        self._in_flight: dict[int, Plan] = {}
        """Plans not completed, by number, that name requests."""
        self._prompts: dict[int, list[Request]] = {}
        """Of steps in flight that were made as ``Prompts``, by number: the requests whose prompts they compute."""
        self._named_late: set[int] = set()
        """Those of ``_in_flight`` that were made without a plan, and got one when the plain scheduler took over."""
        self._completed_at_plan = 0
        """Steps that were completed when the last one was scheduled."""

    @abstractmethod
    def _decide(self) -> Step | None:
        """What runs goes on, and what fits is admitted; None if that is for the plain scheduler to see to."""

    @abstractmethod
    def _schedule_plainly(self) -> Plan:
        """The plain engine's ``schedule``."""

    @abstractmethod
    def _settle_blocks(self, request: Request) -> None:
        """A request has left the steady batch: note the blocks it has taken there."""

    @abstractmethod
    def _merged(self, named: list[Request], members: list[Request]) -> list[Request]:
        """Those that a plan names and those that it does not, as the plain engine lists them."""

    @abstractmethod
    def _in_order(self, ended: list[Request]) -> list[Request]:
        """What ended in one step, as the plain engine lists it."""

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

    def _plainly(self) -> Plan:
        """A step by the plain scheduler."""
        self.settle()
        plan = self._schedule_plainly()
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
        overlapping = self.steps_in_flight > 1
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
            if overlapping:
                request.placeholders -= 1
            if request.known_tokens >= request.final_tokens:
                finished.append(request)
        finished += steady.ended()
        if finished:
            self._end_all(finished)
        return Outcome(emitted, finished, others)

    def _end_all(self, finished: list[Request]) -> None:
        if len(finished) > 1:
            finished[:] = self._in_order(finished)
        for request in finished:
            if request.status is RUNNING:
                self.running.remove(request)
                self._settle_blocks(request)
            self._end(request)
        if self._rest:
            self._rest = [request for request in self._rest if not request.ended]

    def decoded(self, scheduled: int, completed: int, blocks: int) -> None:
        """Steps of a run: take their blocks."""
        self._take_blocks(blocks)
        self.steady.scheduled += scheduled
        self.steady.completed += completed
        self._completed_at_plan = self.steady.completed

    @abstractmethod
    def _take_blocks(self, blocks: int) -> None:
        """Members take so many blocks in all."""

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
                ended = self._in_order(ended)
            for request in ended:
                self.running.remove(request)
                self._settle_blocks(request)
                self._release(request)
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
            members = self._members(plan)
            if members:
                plan.scheduled = self.listed(plan)
                plan.sampled = self._merged(plan.sampled, members)
            plan.steady = 0
        for request in self.running:
            if request.serial:
                self.steady.settle(request)
                self._settle_blocks(request)
        self.steady.clear()

    def abort(self, request: Request) -> None:
        """A client gave up."""
        if request.serial:
            self.steady.settle(request)
            self._settle_blocks(request)
        super().abort(request)
        self._rest = [left for left in self._rest if left is not request]

    def listed(self, plan: Plan) -> list[tuple[Request, int]]:
        """All that a plan schedules, in the engine's order."""
        named, members = dict(plan.scheduled), self._members(plan)
        return [(request, named.get(request, 1)) for request in self._merged(list(named), members)]

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
