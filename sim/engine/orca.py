"""Orca's scheduler: iteration-level batching with memory reserved in advance (Yu et al., OSDI 2022).

Every iteration runs all requests that have begun, one token each, and as many new ones as there are slots, each with
its whole prompt: prefill and decode share a step, and a request leaves as soon as it is done. A new request begins
only if the KV of its prompt and its longest answer can be reserved, so nothing is ever preempted; the first that does
not fit stops those behind it.
"""

from __future__ import annotations

from sim.engine.base import QueueEngine
from sim.engine.cache.rounding import blocks_for
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.engine.step import Step


class Orca(QueueEngine):
    """Of the settings it uses ``max_sequences``, ``max_model_len``, ``block_tokens`` and ``kv_blocks``, all usable.

    It has no token budget, no chunks, no prefix cache and one step in flight. With blocks of 1 token it reserves
    exactly what the paper does.
    """

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows)
        self._reserved_blocks = 0

    @property
    def kv_blocks_used(self) -> int:
        """Blocks reserved, filled or not; 0 in an unlimited pool."""
        return 0 if self.settings.kv_blocks is None else self._reserved_blocks

    def longest_request_tokens(self) -> int | None:
        """What the whole pool holds, of prompt and longest answer."""
        blocks = self.settings.kv_blocks
        return None if blocks is None else blocks * self.settings.block_tokens

    def add(self, request: Request) -> None:
        """A request arrives. No more is reserved for its answer than the pool holds."""
        super().add(request)
        longest = self.longest_request_tokens()
        if longest is not None:
            most_tokens = max(request.final_tokens, longest)
            request.most_computed_tokens = min(request.most_computed_tokens, most_tokens - 1)

    def schedule(self) -> Plan:
        """One token for all that have begun, and whole prompts while slots and memory last."""
        step = Step()
        for request in self.running:
            step.take(request, 1)
        while len(self.waiting) and len(self.running) < self.settings.max_sequences and self._fits(self.waiting.head()):
            request = self.waiting.take()
            self._begin(step, request, 0)
            self.running.append(request)
            request.block_count = self._blocks(request)
            self._reserved_blocks += request.block_count
            step.take(request, request.prompt_tokens)
        return self._commit(step)

    def _fits(self, request: Request) -> bool:
        pool = self.settings.kv_blocks
        return pool is None or self._reserved_blocks + self._blocks(request) <= pool

    def _blocks(self, request: Request) -> int:
        return blocks_for(request.most_tokens, self.settings.block_tokens)

    def _release(self, request: Request) -> None:
        self._reserved_blocks -= request.block_count
        request.block_count = 0
