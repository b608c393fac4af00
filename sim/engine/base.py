"""What engines share: the queue, the running list, the beginning and end of requests, and the making of a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.engine.protocol import Outcome, Plan
from sim.engine.queues import FcfsQueue, WaitingQueue
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.step import Step
from sim.engine.worklist import step_work
from sim.work import PrefillChunk

RUNNING = Status.RUNNING


class BaseEngine(ABC):
    """Settings, and who was admitted with what cached; a subclass keeps its requests and decides its steps."""

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...] = (), *, steps_in_flight: int = 1) -> None:
        """``windows``: the model's sliding windows, for the work it reports."""
        self.settings = settings
        self.steps_in_flight = steps_in_flight
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._windows = windows
        self._caching = False
        """Prompts are looked up in a prefix cache; a subclass that has one says so."""

    @property
    @abstractmethod
    def kv_blocks_used(self) -> int:
        """Blocks held by requests."""

    @abstractmethod
    def longest_request_tokens(self) -> int | None:
        """Prompt + output tokens of the largest request that can ever run to its end; None: no limit."""

    def cached_tokens(self, request: Request) -> int:  # noqa: ARG002
        """Nothing, unless a subclass has a prefix cache."""
        return 0

    @abstractmethod
    def schedule(self) -> Plan:
        """Decide the next step."""

    def _cap(self, request: Request, most_tokens: int) -> None:
        """Prompt and output of a request that arrives end at ``most_tokens`` at the latest."""
        request.final_tokens = min(request.final_tokens, most_tokens)
        request.most_computed_tokens = min(request.most_computed_tokens, most_tokens - 1)

    def _begin(self, step: Step, request: Request, hit_tokens: int) -> None:
        """A request leaves the queue for the running ones, or returns to them, with ``hit_tokens`` of it cached."""
        resumed = request.status is Status.PREEMPTED
        if self._caching and not resumed:
            self.prefix_queries += request.known_tokens
            self.prefix_hits += hit_tokens
        request.status = RUNNING
        request.computed_tokens = hit_tokens
        step.admitted.append((request, hit_tokens, resumed))


class QueueEngine(BaseEngine):
    """Requests wait in one queue, then run; a subclass decides who begins, and the order of ``running``."""

    def __init__(
        self,
        settings: EngineSettings,
        windows: tuple[int, ...] = (),
        *,
        steps_in_flight: int = 1,
        waiting: WaitingQueue | None = None,
    ) -> None:
        super().__init__(settings, windows, steps_in_flight=steps_in_flight)
        self.waiting = FcfsQueue() if waiting is None else waiting
        self.running: list[Request] = []

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
        self._cap(request, self.settings.max_model_len)
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """A client gave up: free what the request holds, now."""
        if request.ended:
            return
        if request.status is RUNNING:
            self.running.remove(request)
        self._end(request, Status.ABORTED)

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result: one new token for every request that sampled, and the end of those that are done."""
        emitted = [request for request in plan.sampled if not request.ended]
        finished: list[Request] = []
        overlapping = self.steps_in_flight > 1
        for request in emitted:
            request.known_tokens += 1
            if overlapping:
                request.placeholders -= 1
            if request.known_tokens >= request.final_tokens:
                finished.append(request)
                self._end(request)
        if finished:
            self.running = [request for request in self.running if request.status is RUNNING]
        return Outcome(emitted, finished)

    @abstractmethod
    def _release(self, request: Request) -> None:
        """Free what a running request holds."""

    def _end(self, request: Request, status: Status = Status.FINISHED) -> None:
        """A request neither holds nor awaits anything any more; the caller takes it out of ``running``."""
        if request.status is RUNNING:
            self._release(request)
        else:
            self.waiting.remove(request)
        request.status = status

    def _commit(self, step: Step) -> Plan:
        """The step is decided: count its tokens as computed before it runs."""
        chunks, decode_contexts, sampled = self._commit_tokens(step.scheduled)
        work = step_work(chunks, decode_contexts, self._windows, len(sampled))
        return Plan(step.scheduled, step.admitted, step.preempted, sampled, work)

    def _commit_tokens(
        self, scheduled: list[tuple[Request, int]], drafts: dict[Request, tuple[int, bool]] | None = None
    ) -> tuple[list[PrefillChunk], list[int], list[Request]]:
        """Prefill chunks, the contexts of decodes, and the requests that sample.

        A decode is one token (and its drafts) of a request that has sampled before, and samples again; all else is a
        prefill chunk. ``drafts`` takes those that follow the known tokens, as in ``Plan``.
        """
        sampled: list[Request] = []
        decode_contexts: list[int] = []
        chunks: list[PrefillChunk] = []
        overlapping = self.steps_in_flight > 1
        for request, tokens in scheduled:
            before = request.computed_tokens
            request.computed_tokens = end = before + tokens
            known = request.known_tokens + request.placeholders
            if end >= known:
                sampled.append(request)
                if overlapping:
                    request.placeholders += 1
                if end > known and drafts is not None:
                    drafts[request] = (end - known, not request.draft_tokens)
                if known - before == 1 and known > request.prompt_tokens:
                    decode_contexts.append(end)
                    continue
            chunks.append(PrefillChunk(tokens, before))
        return chunks, decode_contexts, sampled
