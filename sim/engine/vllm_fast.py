"""vLLM V1's scheduler with its decodes kept as sums, so that a step costs what changes in it and not what runs.

Decides exactly as ``VllmV1`` does, whose code still makes every decision that is not plain: when tokens or KV blocks
do not suffice for all that runs.
"""

from __future__ import annotations

from operator import attrgetter

from sim.engine.cache.kv_cache import KvCache
from sim.engine.cache.run_cache import RunCache
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.engine.steady import SteadyBatch
from sim.engine.steady_engine import SteadyEngine
from sim.engine.step import Step
from sim.engine.versions import VllmV1Rules
from sim.engine.vllm_v1 import VllmV1

_rank = attrgetter("rank")
ANSWER = "o:"
"""Begins the names of segments that are a request's output."""


class FastVllmV1(SteadyEngine, VllmV1):
    """For models whose layers share one KV block table."""

    cache: KvCache | RunCache

    def __init__(self, rules: VllmV1Rules, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(rules, settings, windows)
        if self.cache.caching:
            self.cache = RunCache(settings, unhashed_first=rules.unhashed_blocks_first)
        steady = SteadyBatch(settings.block_tokens, windows, steps_ahead=self.steps_in_flight - 1)
        self._keep_sums(steady, None if self.cache.pool.usable is None else steady.blocks_due)
        self._answers_recur = False
        """Some prompt holds an answer, so that blocks which answers fill must be registered as they do."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        super().add(request)
        if request.prompt is not None and self.cache.caching and not self._answers_recur:
            self._answers_recur = any(segment.startswith(ANSWER) for segment, _ in request.prompt)

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

    def abort(self, request: Request) -> None:
        """A client gave up. What its last step could tell of its tokens is cached, as far as that step computes."""
        if request.serial:
            known = request.known_tokens
            if self.steady.scheduled <= request.leaves_at:
                known = max(known, self.steady.known_tokens(request, self._completed_at_plan))
            self.steady.settle(request)
            self._settle_blocks(request)
            if self._caching:
                self.cache.register(request, min(known, request.computed_tokens))
        super().abort(request)

    def _schedule_plainly(self) -> Plan:
        return VllmV1.schedule(self)

    def _settle_blocks(self, request: Request) -> None:
        self.cache.settle(request)

    def _take_blocks(self, blocks: int) -> None:
        self.cache.pool.take_count(blocks)

    def _merged(self, named: list[Request], members: list[Request]) -> list[Request]:
        return sorted([*named, *members], key=_rank)

    def _in_order(self, ended: list[Request]) -> list[Request]:
        return sorted(ended, key=_rank)
