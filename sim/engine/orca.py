"""Orca's scheduler: iteration-level batching with memory reserved in advance (Yu et al., OSDI 2022).

Every iteration runs all requests that have begun, one token each, and as many new ones as there are slots, each with
its whole prompt: prefill and decode share a step, and a request leaves as soon as it is done. A new request begins
only if the KV of its prompt and its longest answer can be reserved, so nothing is ever preempted; the first that does
not fit stops those behind it.
"""

from __future__ import annotations

from sim.engine.iteration import IterationEngine, blocks_for, most_tokens
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.settings import EngineSettings


class Orca(IterationEngine):
    """Of the settings it uses ``max_sequences``, ``max_model_len``, ``block_tokens`` and ``kv_blocks``, all usable.

    It has no token budget, no chunks, no prefix cache and one step in flight. With blocks of 1 token it reserves
    exactly what the paper does.
    """

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows, steps_in_flight=1)
        self._reserved_blocks = 0

    @property
    def kv_blocks_used(self) -> int:
        """Blocks reserved, filled or not; 0 in an unlimited pool."""
        return 0 if self.settings.kv_blocks is None else self._reserved_blocks

    def longest_request_tokens(self) -> int | None:
        """What the whole pool holds, of prompt and longest answer."""
        blocks = self.settings.kv_blocks
        return None if blocks is None else blocks * self.settings.block_tokens

    def schedule(self) -> Plan:
        """One token for all that have begun, and whole prompts while slots and memory last."""
        scheduled = [(request, 1) for request in self.running]
        admitted: list[tuple[Request, int, bool]] = []
        while self.waiting and len(scheduled) < self.settings.max_sequences and self._fits(self.waiting[0]):
            request = self.waiting[0]
            self._begin(request)
            request.block_count = self._blocks(request)
            self._reserved_blocks += request.block_count
            admitted.append((request, 0, False))
            scheduled.append((request, request.prompt_tokens))
        return self._plan(scheduled, admitted, [])

    def _fits(self, request: Request) -> bool:
        pool = self.settings.kv_blocks
        return pool is None or self._reserved_blocks + self._blocks(request) <= pool

    def _blocks(self, request: Request) -> int:
        return blocks_for(most_tokens(request), self.settings.block_tokens)

    def _release(self, request: Request) -> None:
        self._reserved_blocks -= request.block_count
        request.block_count = 0
