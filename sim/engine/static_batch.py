"""Request-level batching as in FasterTransformer: a batch begins together and is replaced when its last request ends.

All prompts of a batch are computed in one step, then every unfinished request decodes one token per step. Finished
requests keep their slot and their memory until the whole batch is done; only then the next batch is taken.

Two liberties, both in favour of static batching: finished requests are left out of the step's work, as in the vidur
simulator, where real systems go on computing their padding; and prompts are not padded to the longest of the batch.
"""

from __future__ import annotations

from sim.engine.base import QueueEngine
from sim.engine.cache.rounding import blocks_for
from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.engine.step import Step


class StaticBatch(QueueEngine):
    """Of the settings it uses ``max_sequences``, ``max_model_len``, ``block_tokens`` and ``kv_blocks``, all usable.

    Every request takes the memory of ``max_model_len`` tokens, whatever it needs. It has no token budget, no chunks,
    no prefix cache and one step in flight.
    """

    def __init__(self, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows)
        self._slot_blocks = blocks_for(settings.max_model_len, settings.block_tokens)
        self._slots_taken = 0
        """By the last batch, while any of it runs."""

    @property
    def kv_blocks_used(self) -> int:
        """Blocks of all slots of the batch, its finished requests' too; 0 in an unlimited pool."""
        unlimited = self.settings.kv_blocks is None
        return 0 if unlimited or not self.running else self._slots_taken * self._slot_blocks

    def longest_request_tokens(self) -> int | None:
        """``max_model_len``, or nothing at all if the pool has no room for it."""
        if self.settings.kv_blocks is None:
            return None
        return self.settings.max_model_len if self._most_slots() else 0

    def schedule(self) -> Plan:
        """The next batch's prompts if there is no batch; else one token for each of its unfinished requests."""
        step = Step()
        if self.running:
            for request in self.running:
                step.take(request, 1)
            return self._commit(step)
        self._slots_taken = min(self._most_slots(), len(self.waiting))
        for _ in range(self._slots_taken):
            request = self.waiting.take()
            self._begin(step, request, 0)
            self.running.append(request)
            step.take(request, request.prompt_tokens)
        return self._commit(step)

    def _most_slots(self) -> int:
        """Requests for which there are slots, and memory for ``max_model_len`` tokens each."""
        pool, slots = self.settings.kv_blocks, self.settings.max_sequences
        return slots if pool is None else min(slots, pool // self._slot_blocks)

    def _release(self, request: Request) -> None:
        """Its slot stays taken until the batch ends."""
