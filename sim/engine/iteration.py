"""What engines without vLLM's step share: the queue, the requests that have begun, and the making of a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from operator import attrgetter

from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.worklist import step_work
from sim.work import PrefillChunk

ARRIVAL = attrgetter("order")


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold this many tokens."""
    return -(-tokens // block_tokens)


def most_tokens(request: Request) -> int:
    """Prompt and the longest answer it may give: what an engine reserves that never takes memory away again."""
    return request.most_computed_tokens + 1


class IterationEngine(ABC):
    """Requests in order of arrival, waiting or running; its subclass decides each step and frees what ends."""

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...], *, steps_in_flight: int) -> None:
        self.settings = settings
        self.steps_in_flight = steps_in_flight
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.waiting: list[Request] = []
        """Not begun, or paused; by order of arrival."""
        self.running: list[Request] = []
        """Begun and not ended; by order of arrival."""
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

    def add(self, request: Request) -> None:
        """A request arrives; it ends at ``max_model_len`` at the latest."""
        request.final_tokens = min(request.final_tokens, self.settings.max_model_len)
        request.most_computed_tokens = min(request.most_computed_tokens, self.settings.max_model_len - 1)
        self._queue(request)

    def abort(self, request: Request) -> None:
        """A client gave up."""
        if not request.ended:
            self._end(request, Status.ABORTED)

    def complete(self, plan: Plan) -> Outcome:
        """One new token for every request that sampled, and the end of those that are done."""
        emitted: list[Request] = []
        finished: list[Request] = []
        for request in plan.sampled:
            if request.status is not Status.RUNNING and request.ended:
                continue
            request.known_tokens += 1
            if self.steps_in_flight > 1:
                request.placeholders -= 1
            emitted.append(request)
            if request.known_tokens >= request.final_tokens:
                finished.append(request)
                self._end(request, Status.FINISHED)
        return Outcome(emitted, finished)

    @abstractmethod
    def _release(self, request: Request) -> None:
        """Free what a request holds that has just left ``running``."""

    def _queue(self, request: Request) -> None:
        insort(self.waiting, request, key=ARRIVAL)

    def _begin(self, request: Request) -> None:
        self.waiting.remove(request)
        request.status = Status.RUNNING
        insort(self.running, request, key=ARRIVAL)

    def _end(self, request: Request, status: Status) -> None:
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self._release(request)
        else:
            self.waiting.remove(request)
        request.status = status

    def _plan(
        self, scheduled: list[tuple[Request, int]], admitted: list[tuple[Request, int, bool]], preempted: list[Request]
    ) -> Plan:
        """The step is decided: count its tokens as computed before it runs.

        A decode is one token of a request that has sampled before, and samples again; all else is a prefill chunk.
        """
        sampled: list[Request] = []
        decode_contexts: list[int] = []
        chunks: list[PrefillChunk] = []
        for request, tokens in scheduled:
            before = request.computed_tokens
            request.computed_tokens = end = before + tokens
            known = request.known_tokens + request.placeholders
            if end == known:
                sampled.append(request)
                if self.steps_in_flight > 1:
                    request.placeholders += 1
                if tokens == 1 and known > request.prompt_tokens:
                    decode_contexts.append(end)
                    continue
            chunks.append(PrefillChunk(tokens, before))
        work = step_work(chunks, decode_contexts, self._windows, len(sampled))
        return Plan(scheduled, admitted, preempted, sampled, work)
