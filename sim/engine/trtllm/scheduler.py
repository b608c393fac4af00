"""TensorRT-LLM's scheduler, in two stages per iteration: who may run, then how many tokens each gets.

The capacity scheduler walks the requests in order of arrival. By default it admits a context only if the blocks of
its prompt and longest answer can be reserved beside everyone else's, so nothing is ever paused; ``max-utilization``
asks for the next step's blocks only, and pauses the request that began last when they run out. The micro-batch
scheduler then gives one token to each request that generates and shares the rest of the token budget among contexts.

A paused request returns with its answer so far as part of its context. Without chunks a context must fit one step: what
exceeds ``max_batched_tokens`` is dropped and generated again, and the client gets no token twice.

Read from ``capacityScheduler.cpp``, ``microBatchScheduler.cpp``, the KV cache manager and, for pauses,
``llmRequest.h`` and ``trtGptModel.h``. One block table for all
layers; full blocks are reused, not parts of them; no speculation, no beams, no pipeline parallelism.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from sim.engine.base import QueueEngine
from sim.engine.cache.blocks import Block
from sim.engine.cache.reuse_cache import ReuseCache
from sim.engine.protocol import Outcome, Plan
from sim.engine.queues import ARRIVAL, ArrivalQueue
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.step import Step
from sim.engine.trtllm.batch import Candidate, ChunkingPolicy, chunked_contexts, whole_contexts
from sim.engine.trtllm.capacity import CapacityPolicy, CapacityScheduler
from sim.errors import RidgelineError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtLlmSettings(EngineSettings):
    """``max_batched_tokens`` is TensorRT-LLM's max_num_tokens, ``max_sequences`` its max_batch_size, ``block_tokens``
    its tokens_per_block and the unit of chunks. All ``kv_blocks`` are usable: there is no null block.

    Raises RidgelineError if a chunk of one unit does not fit the token budget.
    """

    block_tokens: int = 32
    capacity_policy: CapacityPolicy = "guaranteed-no-evict"
    chunking_policy: ChunkingPolicy = "fcfs"
    batch_wait_timeout_iters: int = 0
    """Iterations that contexts wait for more of them while others generate."""
    batch_wait_max_tokens_ratio: float = 0.0
    """They wait only while a step would have less than this share of its token budget."""

    def __post_init__(self) -> None:
        if self.chunked_prefill and self.max_batched_tokens < self.block_tokens:
            raise RidgelineError(
                f"max_batched_tokens={self.max_batched_tokens} is less than one chunk of block_tokens="
                f"{self.block_tokens}: no long prompt would ever advance\n"
                f"  cure: use at least {self.block_tokens}"
            )


class TrtLlm(QueueEngine):
    """One executor. With ``async_scheduling`` (the overlap scheduler) two steps are in flight.

    ``waiting`` and ``running`` are by order of arrival.
    """

    settings: TrtLlmSettings
    waiting: ArrivalQueue

    def __init__(self, settings: TrtLlmSettings, windows: tuple[int, ...] = ()) -> None:
        steps_in_flight = 2 if settings.async_scheduling else 1
        super().__init__(settings, windows, steps_in_flight=steps_in_flight, waiting=ArrivalQueue())
        self.cache = ReuseCache(settings.kv_blocks, settings.block_tokens, reuse=settings.prefix_caching)
        self._caching = self.cache.reuse
        self._capacity = CapacityScheduler(settings.capacity_policy, settings.max_sequences, self.cache)
        self._waited_iters = 0

    @property
    def kv_blocks_used(self) -> int:
        return self.cache.pool.used

    def longest_request_tokens(self) -> int | None:
        """Reservations cover prompt and longest answer; without them a request computes P + O - 1 tokens."""
        blocks = self.settings.kv_blocks
        if blocks is None:
            return None
        unreserved = self.settings.capacity_policy == "max-utilization"
        return blocks * self.settings.block_tokens + unreserved

    def add(self, request: Request) -> None:
        """A request arrives. No more is reserved for its answer than the pool holds.

        ``register_at`` is where its context ends, and its blocks are stored for reuse.
        """
        request.register_at = request.prompt_tokens
        super().add(request)
        longest = self.longest_request_tokens()
        if longest is not None:
            most_tokens = max(request.final_tokens, longest)
            request.most_computed_tokens = min(request.most_computed_tokens, most_tokens - 1)

    def cached_tokens(self, request: Request) -> int:
        return len(self.cache.prefix(request)) * self.settings.block_tokens

    def schedule(self) -> Plan:
        """Decide the next iteration."""
        step = Step()
        fitting, step.preempted = self._capacity.fit(self.running, self.waiting)
        for request in step.preempted:
            self._pause(request)
        self._share_out(step, fitting)
        return self._commit(step)

    def _share_out(self, step: Step, fitting: list[Request], others: int = 0) -> None:
        """Who gets how many tokens, and its blocks; ``others`` generate beside ``fitting`` and have got theirs."""
        reused = {request: self.cache.prefix(request) for request in fitting if request.status is not Status.RUNNING}
        candidates = [self._candidate(request, reused) for request in fitting]
        step.scheduled = self._after_wait(self._micro_batch(candidates, others), candidates, others)
        # All hold what they reuse before anyone takes blocks, which may evict.
        for request, _ in step.scheduled:
            if request in reused:
                self._start(step, request, reused[request])
        for request, tokens in step.scheduled:
            end = request.computed_tokens + tokens
            if end >= request.visit_at:
                self.cache.cover(request, max(request.register_at, end))

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result. The blocks of a context that was completed can be reused from now on."""
        for request in plan.sampled:
            if request.status is Status.RUNNING and request.known_tokens == request.register_at:
                self.cache.store(request)
        outcome = super().complete(plan)
        emitted = [request for request in outcome.emitted if request.known_tokens > request.sent_tokens]
        for request in outcome.emitted:
            if request.status is Status.PREEMPTED:
                self._drop_excess(request)
        return Outcome(emitted, outcome.finished)

    def _candidate(self, request: Request, reused: dict[Request, list[Block]]) -> Candidate:
        if request.status is Status.RUNNING:
            return Candidate(request, max(0, request.register_at - request.computed_tokens))
        return Candidate(request, request.known_tokens - len(reused[request]) * self.settings.block_tokens)

    def _micro_batch(self, candidates: list[Candidate], others: int) -> list[tuple[Request, int]]:
        chosen = self.settings
        budget = chosen.max_batched_tokens - others
        if not chosen.chunked_prefill:
            return whole_contexts(candidates, budget)
        return chunked_contexts(candidates, budget, chosen.block_tokens, chosen.chunking_policy)

    def _after_wait(
        self, scheduled: list[tuple[Request, int]], candidates: list[Candidate], others: int
    ) -> list[tuple[Request, int]]:
        """Without its contexts where these wait for a fuller batch (``_waiting_requests`` of the PyTorch executor)."""
        if not self.settings.batch_wait_timeout_iters:
            return scheduled
        contexts = {candidate.request for candidate in candidates if candidate.context_tokens}
        generating = [(request, tokens) for request, tokens in scheduled if request not in contexts]
        if not (generating or others) or len(generating) == len(scheduled):
            return scheduled
        enough_tokens = self.settings.batch_wait_max_tokens_ratio * self.settings.max_batched_tokens
        tokens = sum(tokens for _, tokens in scheduled) + others
        if self._waited_iters < self.settings.batch_wait_timeout_iters and tokens < enough_tokens:
            self._waited_iters += 1
            return generating
        self._waited_iters = 0
        return scheduled

    def _start(self, step: Step, request: Request, reused: list[Block]) -> None:
        """A request begins, or begins again after a pause, with its answer so far as part of its context."""
        self.waiting.remove(request)
        self._begin(step, request, len(reused) * self.settings.block_tokens)
        insort(self.running, request, key=ARRIVAL)
        self.cache.share(request, reused)
        request.register_at = request.known_tokens

    def _pause(self, request: Request) -> None:
        """It has lost its blocks, and takes its old place among those that wait."""
        self.running.remove(request)
        request.status = Status.PREEMPTED
        request.computed_tokens = 0
        if not request.placeholders:
            self._drop_excess(request)
        self.waiting.put_back(request)

    def _drop_excess(self, request: Request) -> None:
        """Of a paused request whose last token has arrived: its next context must fit a step."""
        longest = max(self.settings.max_batched_tokens, request.prompt_tokens)
        if not self.settings.chunked_prefill and request.known_tokens > longest:
            request.sent_tokens = max(request.sent_tokens, request.known_tokens)
            request.known_tokens = longest

    def _release(self, request: Request) -> None:
        self.cache.release(request)
