"""Engines that give a prompt all its KV blocks at admission, and one more whenever a decode fills its last.

So do vLLM V0 (read in 0.6.6) and Sarathi-Serve, which grew out of it. A prompt is admitted only if a watermark of the
blocks stays free; decodes may use that watermark. When a decode finds no block free, the last running request is
preempted: its blocks are freed, it goes to the front of the queue, and what it had sampled is recomputed as a part of
its prompt.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from sim.engine.base import QueueEngine
from sim.engine.cache.blocks import Block, BlockPool
from sim.engine.cache.prompts import full_block_keys
from sim.engine.cache.rounding import blocks_for
from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.settings import EngineSettings
from sim.engine.step import Step


def prefilling(request: Request) -> bool:
    """Some of the tokens that a running request was admitted with are not computed yet: its blocks reach beyond."""
    return request.computed_tokens + 1 < request.visit_at


class PromptBlocks:
    """The block manager: ``kv_blocks`` of the settings, all of them usable; None is as many as anyone asks for.

    ``request.visit_at`` is one more than the tokens its blocks were asked for: a step that ends below it needs none.
    Freed blocks that cache nothing are taken first, then the least recently used, the tail of a request before its
    head. Unlike vLLM's, equal blocks are not merged: prompts that start in the same step hold a copy each.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.block_tokens = settings.block_tokens
        self.caching = settings.prefix_caching and settings.kv_blocks is not None
        self.pool = BlockPool(settings.kv_blocks, unhashed_first=True)
        self.watermark_blocks = int(settings.watermark * (settings.kv_blocks or 0))

    def hit(self, request: Request) -> list[Block]:
        """Cached blocks that a waiting request begins with; all its full blocks may be."""
        blocks: list[Block] = []
        if self.caching:
            most = request.known_tokens // self.block_tokens
            for key in islice(full_block_keys(request, self.block_tokens, most), most):
                block = self.pool.cached(key)
                if block is None:
                    break
                blocks.append(block)
        return blocks

    def fits(self, request: Request) -> bool:
        """All known tokens have room beside the watermark; what is cached is counted as if it were not."""
        return self._blocks(request.known_tokens) + self.watermark_blocks <= self.pool.free

    def admit(self, request: Request, hit: list[Block]) -> None:
        """Give a request that fits its hit, and blocks for all the rest it knows."""
        request.block_count = self._blocks(request.known_tokens)
        request.visit_at = request.known_tokens + 1
        fresh = request.block_count - len(hit)
        if self.caching:
            self.pool.hold(hit)
            request.blocks = hit + self.pool.take(fresh)
            request.registered_blocks = len(hit)
        else:
            self.pool.take_count(fresh)

    def can_go_on(self, request: Request) -> bool:
        """A decode must find one block free, whether it will take it or not.

        The test counts the blocks that new tokens touch, each as if it were a new one. A prompt in chunks adds none,
        and still touches its last block unless that is full.
        """
        touches_none = prefilling(request) and (request.visit_at - 1) % self.block_tokens == 0
        return touches_none or self.pool.free >= 1

    def go_on(self, request: Request) -> None:
        """Room for the next token of a decode; the chunks of a prompt have theirs."""
        if prefilling(request):
            return
        request.visit_at = request.computed_tokens + 2
        if self._blocks(request.computed_tokens + 1) > request.block_count:
            request.block_count += 1
            if self.caching:
                request.blocks += self.pool.take(1)
            else:
                self.pool.take_count(1)

    def register(self, request: Request) -> None:
        """Blocks whose tokens are all computed may be hit from now on."""
        if not self.caching:
            return
        full = request.computed_tokens // self.block_tokens
        keys = full_block_keys(request, self.block_tokens, full)
        for index in range(request.registered_blocks, full):
            self.pool.register(request.blocks[index], keys[index])
        request.registered_blocks = max(full, request.registered_blocks)

    def release(self, request: Request) -> None:
        """Free all blocks of a request; the cached ones can still be hit."""
        if self.caching:
            self.pool.give(request.blocks)
            request.blocks = []
        else:
            self.pool.give_count(request.block_count)
        request.block_count = 0

    def _blocks(self, tokens: int) -> int:
        return blocks_for(tokens, self.block_tokens)


class PromptBlockEngine(QueueEngine):
    """Admission and preemption on whole-prompt blocks; a subclass decides the order of a step."""

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows)
        self.blocks = PromptBlocks(settings)
        self._caching = settings.prefix_caching

    @property
    def kv_blocks_used(self) -> int:
        return self.blocks.pool.used

    def cached_tokens(self, request: Request) -> int:
        return len(self.blocks.hit(request)) * self.settings.block_tokens

    def complete(self, plan: Plan) -> Outcome:
        for request, _ in plan.scheduled:
            if request.status is Status.RUNNING:
                self.blocks.register(request)
        return super().complete(plan)

    def _share(self, step: Step, tokens: int) -> int:
        """How many of a prompt's next ``tokens`` this step takes."""
        return min(tokens, step.budget)

    def _admit(self, step: Step) -> None:
        """Waiting requests, from the head, until one does not fit the blocks, the budget or ``max_sequences``.

        A prompt that is cached to its end computes its last token anew. What is cached costs no budget.
        """
        while len(self.waiting) and len(self.running) < self.settings.max_sequences:
            request = self.waiting.head()
            hit = self.blocks.hit(request)
            hit_tokens = min(len(hit) * self.blocks.block_tokens, request.known_tokens - 1)
            tokens = self._share(step, request.known_tokens - hit_tokens)
            if tokens == 0 or not self.blocks.fits(request):
                break
            self.blocks.admit(request, hit)
            self.waiting.take()
            self._begin(step, request, hit_tokens)
            self.running.append(request)
            step.take(request, tokens)

    def _make_room(self, step: Step, request: Request, behind: deque[Request]) -> bool:
        """Preempt those behind, last first, until a running request can go on; False if it gave way itself."""
        while not self.blocks.can_go_on(request):
            victim = behind.pop() if behind else request
            self._preempt(step, victim)
            if victim is request:
                return False
        self.blocks.go_on(request)
        return True

    def _preempt(self, step: Step, victim: Request) -> None:
        self._release(victim)
        victim.computed_tokens = 0
        victim.status = Status.PREEMPTED
        step.preempted.append(victim)

    def _release(self, request: Request) -> None:
        self.blocks.release(request)
