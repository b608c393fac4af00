"""SGLang's scheduler (0.5), decision by decision.

A step is either a prefill batch or a decode batch, and prefill goes first: as long as waiting requests are admitted,
running ones do not decode (unless ``mixed_chunk``). One prompt at a time may be cut into chunks. Whether a request is
admitted rests on an estimate of what the running ones will generate; where it was too low, a decode step that runs out
of pages retracts requests: those with the fewest output tokens give up their pages, go to the end of the queue, and
recompute prompt and output when they are admitted again. After a refusal for memory nothing is tried until some
request leaves. Read from SGLang 0.5.23.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sim.engine.base import RUNNING, BaseEngine
from sim.engine.cache.radix_cache import RadixCache
from sim.engine.cache.token_runs import request_runs
from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.sglang.admission import Admission, Verdict
from sim.engine.sglang.running import Running
from sim.engine.sglang.settings import SglangSettings
from sim.engine.sglang.step import BatchStep
from sim.engine.sglang.waiting import Waiting


class Launched(NamedTuple):
    """A step that is not completed, and the requests whose prefill it ends."""

    plan: Plan
    prefilled: set[Request]


class Sglang(BaseEngine):
    """One scheduler: inbox, waiting queue, running batch and radix cache."""

    settings: SglangSettings

    def __init__(self, settings: SglangSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows, steps_in_flight=2 if settings.async_scheduling else 1)
        self.cache = RadixCache(settings)
        self._caching = self.cache.caching
        self.inbox: list[Request] = []
        """Arrived, and not yet seen by the scheduler."""
        self.waiting = Waiting(settings, self.cache)
        self.running = Running(settings, self.cache, self.waiting)
        self.chunked: Request | None = None
        """The request whose prompt is cut, and not yet prefilled to its end."""
        self._mixes = settings.mixed_chunk and settings.chunked_prefill
        self._last_prefill: list[Request] = []
        """The last step's batch, if it was a prefill batch."""
        self._launched: deque[Launched] = deque()
        self._steps_since_receive = 0

    @property
    def unfinished(self) -> int:
        return self.running_count + self.waiting_count

    @property
    def running_count(self) -> int:
        return len(self.cache.held)

    @property
    def waiting_count(self) -> int:
        return len(self.inbox) + len(self.waiting)

    @property
    def kv_blocks_used(self) -> int:
        return self.cache.used_pages

    def longest_request_tokens(self) -> int | None:
        """Admission asks for the prompt in whole pages, the output, and one page and ``_spare_tokens`` more."""
        capacity = self.cache.capacity_tokens()
        if capacity is None:
            return None
        return capacity - 2 * self.settings.block_tokens + 1 - self._spare_tokens

    @property
    def _spare_tokens(self) -> int:
        """Tokens that stay free beside a lone request: one, and where releases are played through, one per request."""
        return 2 if self.settings.ignore_eos and not self.cache.caching else 1

    def cached_tokens(self, request: Request) -> int:
        if not self._caching:
            return 0
        return self.cache.tree.cached_tokens(request_runs(request), request.known_tokens - 1)

    def add(self, request: Request) -> None:
        """A request arrives. Its answer is capped to what the empty pool would let it generate."""
        longest = self.settings.max_model_len
        capacity, page = self.cache.capacity_tokens(), self.settings.block_tokens
        if capacity is not None:
            unfilled = -request.prompt_tokens % page
            longest = min(longest, max(request.prompt_tokens + 1, capacity - unfilled - page - self._spare_tokens))
        self._cap(request, longest)
        self.inbox.append(request)

    def abort(self, request: Request) -> None:
        """A client gave up: what the request computed stays cached, what else it holds is free now."""
        if request.status is RUNNING:
            self._end(request, Status.ABORTED)
            if request is self.chunked:
                self.chunked = None
        elif not request.ended:
            if request in self.inbox:
                self.inbox.remove(request)
            else:
                self.waiting.remove(request)
            self.cache.forget(request)
            request.status = Status.ABORTED

    def schedule(self) -> Plan:
        """Decide the next step: a prefill batch if one can be made, else a decode batch."""
        self._receive()
        if self.chunked is not None:
            self.cache.checkpoint(self.chunked, self.chunked.computed_tokens)
        self.running.merge(self._last_prefill, self.chunked)
        step = BatchStep()
        self._prefill(step)
        if not step.prefills:
            self.running.decode(step, self._ending_in_flight())
        self._last_prefill = step.requests if step.prefills else []
        plan = step.commit(self.chunked, self._windows)
        if not plan.empty:
            prefilled = {request for request, _ in step.prefills if request is not self.chunked}
            self._launched.append(Launched(plan, prefilled))
        return plan

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result. What a request samples that was retracted meanwhile is dropped, and sampled anew."""
        prefilled: set[Request] = set()
        if self._launched and self._launched[0].plan is plan:
            prefilled = self._launched.popleft().prefilled
        emitted: list[Request] = []
        finished: list[Request] = []
        for request in plan.sampled:
            if request.status is not RUNNING:
                continue
            request.known_tokens += 1
            emitted.append(request)
            if request.known_tokens >= request.final_tokens:
                finished.append(request)
                self._end(request, Status.FINISHED)
            elif request in prefilled:
                self.cache.checkpoint(request, request.known_tokens - 1)
        return Outcome(emitted, finished)

    def _end(self, request: Request, status: Status) -> None:
        """Cache what a running request has computed and knows, free the rest."""
        self.cache.checkpoint(request, min(request.computed_tokens, request.known_tokens))
        self.cache.release(request)
        self.cache.forget(request)
        request.status = status

    def _receive(self) -> None:
        """Look into the inbox: every ``recv_interval`` decode steps, after a prefill, and when nothing runs."""
        self._steps_since_receive += 1
        idle = not self.cache.held and not self._launched
        if idle or self._last_prefill or self._steps_since_receive >= self.settings.recv_interval:
            self._steps_since_receive = 0
            for request in self.inbox:
                self.waiting.add(request)
            self.inbox.clear()
        if idle and not self.waiting.requests:
            self.running.ratio.reset()

    def _prefill(self, step: BatchStep) -> None:
        """Make a prefill batch: the unfinished chunk first, then waiting requests in the order of the policy."""
        running = self.running
        if self.settings.priority_preemption or not running.requests:
            running.full = False
        if self.chunked is None and not self._admits():
            return
        self.waiting.sort()
        admission = Admission(self.settings, self.cache, running.requests, running.ratio.current)
        if self.chunked is not None:
            limit = self.waiting.shortest_first_chunk(self.chunked, admission.chunk_left or 0)
            admission.continue_chunked(self.chunked, limit)
            if not admission.chosen:
                return
        self._admit(step, admission)
        self.chunked = admission.chunked
        self._take_pages(step, admission)
        if step.prefills and self._mixes:
            running.mix(step, self._ending_in_flight())

    def _admits(self) -> bool:
        """Is it worth a look at the queue."""
        if self.running.full or not self.waiting.requests:
            return False
        if len(self.running.requests) >= self.settings.max_sequences and not self.settings.priority_preemption:
            self.running.full = True
        return not self.running.full

    def _admit(self, step: BatchStep, admission: Admission) -> None:
        """Walk the queue; who is refused for memory closes it for all, until somebody leaves."""
        running, settings = self.running, self.settings
        for request in list(self.waiting.requests):
            if admission.verdict is Verdict.NO_BUDGET:
                break
            if len(admission.chosen) >= settings.max_sequences - len(running.requests):
                running.full = True
            if running.full and not (settings.priority_preemption and running.preempt_for(request, step, admission)):
                break
            before = len(admission.chosen)
            verdict = admission.add(request)
            if len(admission.chosen) > before:
                self.waiting.remove(request)
                self._begin(step, request, admission.chosen[-1].prefix_tokens)
            if verdict is Verdict.NO_MEMORY:
                running.full = bool(admission.chosen or running.requests)
            if verdict is not Verdict.GO_ON:
                break

    def _take_pages(self, step: BatchStep, admission: Admission) -> None:
        """Pages for the whole batch; with pages of several tokens SGLang evicts as if each needed one more."""
        page = self.settings.block_tokens
        batch_tokens = sum(chosen.tokens for chosen in admission.chosen)
        self.cache.make_free(batch_tokens + (len(admission.chosen) * page if page > 1 else 0))
        for request, tokens, _ in admission.chosen:
            self.cache.extend(request, request.computed_tokens + tokens)
            step.prefills.append((request, tokens))
        self.waiting.prefill_tokens += batch_tokens

    def _ending_in_flight(self) -> set[Request]:
        """With the overlap schedule: running requests that the step in flight will end by length."""
        if not self._launched:
            return set()
        return {
            request
            for request in self._launched[-1].plan.sampled
            if request.known_tokens >= request.most_computed_tokens and request.status is RUNNING
        }


__all__ = ["Sglang", "SglangSettings"]
