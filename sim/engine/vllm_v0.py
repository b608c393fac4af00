"""vLLM's first scheduler, V0, as in release 0.6.6.

By default prompts go first: whenever one can be admitted, the step is made of whole prompts only, and every decode
waits. Otherwise each running request decodes one token. With chunked prefill a step takes the running requests first,
decodes and prompts in progress alike, then new prompts with what is left of the budget.

Not modelled: preemption by swapping (recompute is what V0 does for one sequence per request), the priority policy, the
scheduler delay factor (0 by default), and multi-step scheduling.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sim.engine.prompt_blocks import PromptBlockEngine, prefilling
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.engine.step import Step
from sim.errors import RidgelineError


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmV0Settings(EngineSettings):
    """V0's own defaults. ``kv_blocks`` are all usable, there is no null block; ``watermark`` is of all of them."""

    watermark: float = 0.01
    chunked_prefill: bool = False
    """V0 turns it on by itself where ``max_model_len`` exceeds 32,768 tokens."""
    prefix_caching: bool = False


class VllmV0(PromptBlockEngine):
    """One engine core. Of the base settings it reads the sizes, ``watermark``, ``chunked_prefill``, ``prefix_caching``.

    Blocks are hit from the step after the one that computes them. (0.6.6 with both chunks and caching marks a whole
    prompt as cached after its first chunk; here each block only once it is computed.)
    """

    def __init__(self, settings: VllmV0Settings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows)
        self._chunked = settings.chunked_prefill
        self._unit = settings.block_tokens if self._chunked and settings.prefix_caching else 1
        if settings.max_batched_tokens % self._unit:
            raise RidgelineError(
                f"vLLM V0 with chunked and cached prefill: max_batched_tokens, {settings.max_batched_tokens}, is not a "
                f"multiple of block_tokens, {self._unit}\n  cure: use a multiple, or turn one of the two off"
            )

    def longest_request_tokens(self) -> int | None:
        """What can be admitted again after a preemption at its last token; V0 fails what cannot ("ignored").

        Prompt + output - 1 tokens must fit beside the watermark. A prompt in chunks also needs a free block to go on.
        """
        pool, watermark = self.blocks.pool, self.blocks.watermark_blocks
        if pool.usable is None:
            return None
        spare = max(watermark, 1) if self._chunked else watermark
        return (pool.usable - spare) * self.blocks.block_tokens + 1

    def schedule(self) -> Plan:
        step = Step(self.settings.max_batched_tokens)
        if self._chunked:
            self._run(step)
            self._admit(step)
        else:
            self._admit(step)
            if not step.scheduled:
                self._run(step)
        for victim in step.preempted:
            self.waiting.put_back(victim)
        return self._commit(step)

    def _share(self, step: Step, tokens: int) -> int:
        """A whole prompt or nothing; or a chunk, and with caching the rest of the budget counts in whole blocks."""
        if not self._chunked:
            return tokens if tokens <= step.budget else 0
        return min(tokens, step.budget // self._unit * self._unit)

    def _run(self, step: Step) -> None:
        """Running requests in order, until the budget is spent.

        Those it does not reach are first in the next step; then come decodes, then prompts in progress.
        """
        queue = deque(self.running)
        decodes: list[Request] = []
        prompts: list[Request] = []
        while queue:
            tokens = self._share(step, queue[0].known_tokens - queue[0].computed_tokens)
            if tokens == 0:
                break
            request = queue.popleft()
            kind = prompts if prefilling(request) else decodes
            if self._make_room(step, request, queue):
                step.take(request, tokens)
                kind.append(request)
        self.running = [*queue, *decodes, *prompts]
