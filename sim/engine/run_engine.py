"""What schedulers share that step plainly, and only lives through runs of decode steps of the same requests at once."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from sim.engine.base import BaseEngine
from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.steady import SteadyBatch
from sim.work import StepWork

RUNNING = Status.RUNNING
WORTH_IT = 6
"""Steps of a run from which it pays to sum its requests up, and to write the sums back."""
WAITS = 2
"""Plain steps of the same requests before a run begins: where something happens all the time few runs are worth it."""


class RunEngine(BaseEngine):
    """Comes before the plain engine among the bases of a fast one, whose constructor calls ``_keep_runs``.

    A run begins when the step planned last decoded just the requests that the next one would. They join the steady
    batch together, and leave it together as soon as a plain step is asked for.
    """

    steady: SteadyBatch
    blocks_due: list[int]

    def _keep_runs(self, block_tokens: int, *, counts_blocks: bool) -> None:
        """``counts_blocks``: the KV pool is limited."""
        self.steady = SteadyBatch(block_tokens, self._windows, steps_ahead=self.steps_in_flight - 1)
        self.blocks_due = self.steady.blocks_due if counts_blocks else [0] * block_tokens
        self._together: list[Request] = []
        """The requests of the run, in the engine's order; none: there is no run."""
        self._latest: Plan | None = None
        """The last plan, if it was not empty."""
        self._repeated = 0
        """How often it did the same as the one before."""
        self._named_late: deque[Plan] = deque()
        """Plans of a run's steps that were in flight when it was over."""

    @abstractmethod
    def _schedule_plainly(self) -> Plan:
        """The plain engine's ``schedule``."""

    @abstractmethod
    def _complete_plainly(self, plan: Plan) -> Outcome:
        """The plain engine's ``complete``."""

    @abstractmethod
    def _decoding(self) -> list[Request]:
        """The requests that a step without prompts would decode, if none has ended."""

    @abstractmethod
    def _plans_in_flight(self) -> int:
        """How many plans that are not empty are to be completed."""

    @abstractmethod
    def _steps_ahead(self, sequences: int) -> int:
        """How many of the next steps do nothing but decode so many requests, unless one arrives or ends."""

    @abstractmethod
    def _went_on(self, steps: int) -> None:
        """So many steps of a run were scheduled: whatever they change but their requests' tokens."""

    @abstractmethod
    def _launched_late(self, plan: Plan) -> None:
        """A step in flight got its plan."""

    @abstractmethod
    def _settle_blocks(self, request: Request) -> None:
        """A request has left a run: note the blocks it has taken there."""

    @abstractmethod
    def _finish(self, request: Request) -> None:
        """A request has ended."""

    def schedule(self) -> Plan:
        """Decide the next step."""
        self.settle()
        plan, latest = self._schedule_plainly(), self._latest
        repeats = latest is not None and not plan.work.chunks and plan.sampled == latest.sampled
        self._repeated = self._repeated + 1 if repeats else 0
        self._latest = None if plan.empty else plan
        return plan

    def next_step(self) -> Plan:
        """``schedule``: all that is not known beforehand is named."""
        return self.schedule()

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result; in a run it is the step before it, of the same requests."""
        if not self._together:
            return self._complete_plainly(plan)
        emitted = [request for request in plan.sampled if request.status is RUNNING]
        return Outcome(emitted, self._complete_next())

    def complete_steady(self) -> tuple[list[Request], list[Request]] | None:
        """Complete the oldest step in flight, made by ``decoded``: no first tokens, and what ended.

        None, with nothing done, if the run is over: ``complete`` takes its ``steady_plan``.
        """
        return ([], self._complete_next()) if self._together else None

    def _complete_next(self) -> list[Request]:
        self.steady.completed += 1
        ended = sorted(self.steady.ended(), key=lambda request: request.rank)
        for request in ended:
            self._settle_blocks(request)
            self._finish(request)
        return ended

    def steady_plan(self) -> Plan:
        """The plan of the oldest step in flight, where it was made by ``decoded``."""
        return self._named_late.popleft()

    def last_known_step(self) -> int:
        """Until a request of the run may get no more tokens, or the engine has something else to do."""
        if not self._together and not self._begin_run():
            return 0
        steady = self.steady
        steady.drop(steady.scheduled + 1)
        if steady.count != len(self._together):
            return 0
        return min(steady.last_unchanged(), steady.scheduled + self._steps_ahead(steady.count))

    def _begin_run(self) -> bool:
        latest, in_flight = self._latest, self._plans_in_flight()
        if latest is None or self._repeated < WAITS or self._named_late or in_flight != self.steps_in_flight - 1:
            return False
        batch = self._decoding()
        if not batch or self._steps_ahead(len(batch)) < WORTH_IT or latest.sampled != batch:
            return False
        left = min([min(one.most_computed_tokens, one.final_tokens) - one.computed_tokens for one in batch])
        if left < WORTH_IT or any(request.status is not RUNNING for request in batch):
            return False
        steady = self.steady
        steady.scheduled += 1
        steady.completed = steady.scheduled - in_flight
        for rank, request in enumerate(batch):
            request.rank = rank
            steady.join(request)
        self._together = list(batch)
        return True

    def decoded(self, scheduled: int, completed: int, blocks: int) -> None:  # noqa: ARG002
        """Steps of a run."""
        self._went_on(scheduled)
        self.steady.scheduled += scheduled
        self.steady.completed += completed

    def settle(self) -> None:
        """A run is over: write the sums back into its requests, and name those of the steps in flight."""
        together, steady = self._together, self.steady
        if not together:
            return
        self._together = []
        began = min(request.joined_at for request in together)
        for number in range(max(steady.completed, began) + 1, steady.scheduled + 1):
            batch = [request for request in together if request.serial and request.leaves_at >= number]
            plan = Plan([(request, 1) for request in batch], [], [], batch, StepWork((), len(batch), 0))
            self._named_late.append(plan)
            self._launched_late(plan)
        for request in together:
            if request.serial:
                steady.settle(request)
                self._settle_blocks(request)
        steady.clear()
        steady.streaming = 0
