"""What the engines share that plan a step only when the one before is done."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.engine.protocol import Outcome, Plan
from sim.engine.queues import FcfsQueue
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.worklist import step_work
from sim.work import PrefillChunk


class Step:
    """What is decided so far in one schedule() call."""

    __slots__ = ("admitted", "budget", "preempted", "scheduled")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        """Tokens the step may still take."""
        self.scheduled: list[tuple[Request, int]] = []
        self.admitted: list[tuple[Request, int, bool]] = []
        self.preempted: list[Request] = []

    def take(self, request: Request, tokens: int) -> None:
        """The step computes the request's next ``tokens``."""
        self.scheduled.append((request, tokens))
        self.budget -= tokens

    def plan(self, windows: tuple[int, ...]) -> Plan:
        """The step is decided: count its tokens as computed before it runs.

        A decode is one token of a request that has sampled before, and samples again; all else is a prefill chunk.
        """
        sampled: list[Request] = []
        decode_contexts: list[int] = []
        chunks: list[PrefillChunk] = []
        for request, tokens in self.scheduled:
            before = request.computed_tokens
            request.computed_tokens = end = before + tokens
            if end == request.known_tokens:
                sampled.append(request)
                if tokens == 1 and end > request.prompt_tokens:
                    decode_contexts.append(end)
                    continue
            chunks.append(PrefillChunk(tokens, before))
        work = step_work(chunks, decode_contexts, windows, len(sampled))
        return Plan(self.scheduled, self.admitted, self.preempted, sampled, work)


class SynchronousEngine(ABC):
    """Queue, running list and the end of requests; a subclass decides its steps, and who holds which blocks."""

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        self.settings = settings
        self.steps_in_flight = 1
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.waiting = FcfsQueue()
        self.running: list[Request] = []
        self._windows = windows

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
    @abstractmethod
    def kv_blocks_used(self) -> int:
        """Blocks held by requests."""

    @abstractmethod
    def longest_request_tokens(self) -> int | None:
        """Prompt + output tokens of the largest request that can ever run to its end; None: no limit."""

    @abstractmethod
    def schedule(self) -> Plan:
        """Decide the next step."""

    @abstractmethod
    def _release(self, request: Request) -> None:
        """Free what a running request holds."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        request.final_tokens = min(request.final_tokens, self.settings.max_model_len)
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """A client gave up: free what the request holds, now."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self._release(request)
        elif not request.ended:
            self.waiting.remove(request)
        request.status = Status.ABORTED

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result: one new token for every request that sampled, and the end of those that are done."""
        emitted = [request for request in plan.sampled if not request.ended]
        finished: list[Request] = []
        for request in emitted:
            request.known_tokens += 1
            if request.known_tokens >= request.final_tokens:
                finished.append(request)
                self._release(request)
                request.status = Status.FINISHED
        if finished:
            self.running = [request for request in self.running if not request.ended]
        return Outcome(emitted, finished)

    def _start(self, step: Step, request: Request, hit_tokens: int) -> None:
        """The head of the queue is admitted, with ``hit_tokens`` of it cached."""
        self.waiting.take()
        resumed = request.status is Status.PREEMPTED
        if self.settings.prefix_caching and not resumed:
            self.prefix_queries += request.known_tokens
            self.prefix_hits += hit_tokens
        request.status = Status.RUNNING
        request.computed_tokens = hit_tokens
        self.running.append(request)
        step.admitted.append((request, hit_tokens, resumed))
