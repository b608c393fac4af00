"""Sarathi-Serve's scheduler (OSDI 2024): decodes never wait for a prompt.

Each step takes one token of every decode, then fills a fixed budget, the chunk size, with prompts: those in progress,
oldest first, then new ones. From the paper, its public implementation and the model of it in Vidur.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sim.engine.prompt_blocks import PromptBlockEngine, prefilling
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.engine.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class SarathiSettings(EngineSettings):
    """The published defaults: ``max_batched_tokens`` is the chunk size. All ``kv_blocks`` are usable."""

    max_batched_tokens: int = 512
    watermark: float = 0.01
    prefix_caching: bool = False


class Sarathi(PromptBlockEngine):
    """One engine core. Of the settings it reads the sizes, ``watermark`` and ``prefix_caching``.

    Prefix caching is not in the original; turned on, it works as in vLLM V0.
    """

    def longest_request_tokens(self) -> int | None:
        """What can be admitted again after a preemption at its last token, with the watermark left free."""
        pool, watermark = self.blocks.pool, self.blocks.watermark_blocks
        return None if pool.usable is None else (pool.usable - watermark) * self.blocks.block_tokens + 1

    def schedule(self) -> Plan:
        """A victim is first in the queue, so it would be admitted first: not in its own step, nor anyone after it."""
        step = Step(self.settings.max_batched_tokens)
        prompts = self._decode(step)
        for request in prompts:
            step.take(request, self._share(step, request.known_tokens - request.computed_tokens))
        if step.preempted:
            for victim in step.preempted:
                self.waiting.put_back(victim)
        else:
            self._admit(step)
        return self._commit(step)

    def _decode(self, step: Step) -> list[Request]:
        """One token of every decode, in order of arrival; one short of a block preempts the last one behind it.

        Returns the prompts in progress. They have all their blocks; and as one is admitted only with budget left over,
        there is always some for them.
        """
        queue = deque(self.running)
        kept: list[Request] = []
        prompts: list[Request] = []
        while queue:
            request = queue.popleft()
            if prefilling(request):
                prompts.append(request)
            elif self._make_room(step, request, queue):
                step.take(request, 1)
            else:
                continue
            kept.append(request)
        self.running = kept
        return prompts
