"""llama.cpp's server: a fixed number of slots, each with its own part of the context.

A request waits for a free slot and keeps it to its end: there is no paging and no preemption. Each step takes one token
of every slot that generates, then fills the batch with prompt tokens, slot by slot. A slot remembers what it computed
last, and the next request that gets it goes on from their common beginning.

Read in ``tools/server`` (``update_slots``, ``get_available_slot``) of 2026: the order of a batch, the choice of a slot,
and where a generation ends. Assumed: continuous batching and no context shift (the defaults); contexts of equal, fixed
size (no ``--kv-unified``); no copies of prompts in host memory (``--cache-ram 0``); models with a sliding window keep
all tokens (``--swa-full``). A step is one batch of ``-b`` tokens; that the device computes it in pieces of ``-ub``
tokens is not the scheduler's concern.
"""

from __future__ import annotations

from sim.engine.base import QueueEngine
from sim.engine.cache.prompts import common_tokens, pieces_of
from sim.engine.protocol import Plan
from sim.engine.request import Piece, Request
from sim.engine.settings import EngineSettings
from sim.engine.step import Step


class Slot:
    """One sequence of the server: who has it, and the tokens in its part of the context."""

    __slots__ = ("last_release", "pieces", "request", "tokens")

    def __init__(self) -> None:
        self.request: Request | None = None
        self.last_release = 0
        """Rank of its last release; 0: it was never used."""
        self.pieces: tuple[Piece, ...] = ()
        self.tokens = 0
        """How many tokens of the pieces are computed; up to date while nobody has the slot."""

    def common_tokens(self, request: Request) -> int:
        """Length of the prompt's beginning that is already in the slot."""
        return min(common_tokens(self.pieces, pieces_of(request)), self.tokens, request.prompt_tokens)


class LlamaCpp(QueueEngine):
    """One server of ``max_sequences`` slots (``-np``); ``max_batched_tokens`` is ``-b``, 2048 by default.

    ``max_model_len`` is the context of one slot; where ``kv_blocks`` are fewer, they are divided evenly.
    ``slot_prompt_similarity``: a free slot is preferred if it holds more than this share of the prompt (0.1 since late
    2025, 0.5 before); otherwise the least recently used one is taken, of unused ones the last.
    """

    def __init__(
        self, settings: EngineSettings, windows: tuple[int, ...] = (), *, slot_prompt_similarity: float = 0.1
    ) -> None:
        super().__init__(settings, windows)
        self._caching = settings.prefix_caching
        self.slots = [Slot() for _ in range(settings.max_sequences)]
        self.slot_tokens = settings.max_model_len
        self._slot_blocks = 0
        if settings.kv_blocks is not None:
            self._slot_blocks = settings.kv_blocks // settings.max_sequences
            self.slot_tokens = min(self.slot_tokens, self._slot_blocks * settings.block_tokens)
        self._similarity = slot_prompt_similarity
        self._releases = 0

    @property
    def kv_blocks_used(self) -> int:
        """A request holds all of its slot's part, however little of it is filled."""
        return len(self.running) * self._slot_blocks

    def longest_request_tokens(self) -> int | None:
        """The context of one slot, the last sampled token included."""
        return self.slot_tokens

    def add(self, request: Request) -> None:
        self._cap(request, self.slot_tokens)
        super().add(request)

    def cached_tokens(self, request: Request) -> int:
        """In the slot it would get; none of its own while all are taken."""
        free = self._caching and any(slot.request is None for slot in self.slots)
        return self._slot_for(request).common_tokens(request) if free else 0

    def schedule(self) -> Plan:
        """Generating slots first, then prompts, both in the order of the slots."""
        step = Step(self.settings.max_batched_tokens)
        self._fill_slots(step)
        requests = [slot.request for slot in self.slots if slot.request is not None]
        prompts = [request for request in requests if request.computed_tokens < request.prompt_tokens]
        for request in requests:
            if request.computed_tokens >= request.prompt_tokens:
                step.take(request, 1)
        for request in prompts:
            if step.budget > 0:
                step.take(request, min(request.prompt_tokens - request.computed_tokens, step.budget))
        return self._commit(step)

    def _fill_slots(self, step: Step) -> None:
        """Waiting requests, first come first served, while a slot is free.

        The last prompt token is always computed, for its logits.
        """
        while len(self.waiting) and len(self.running) < len(self.slots):
            request = self.waiting.head()
            slot = self._slot_for(request)
            cached = slot.common_tokens(request) if self._caching else 0
            slot.request, slot.pieces = request, pieces_of(request)
            self.waiting.take()
            self._begin(step, request, min(cached, request.prompt_tokens - 1))
            self.running.append(request)

    def _slot_for(self, request: Request) -> Slot:
        """The free slot that holds most of the prompt's beginning, if it is enough; else the least recently used."""
        free = [slot for slot in self.slots if slot.request is None]
        similar = max(free, key=lambda slot: slot.common_tokens(request))
        if similar.common_tokens(request) > self._similarity * request.prompt_tokens:
            return similar
        return min(reversed(free), key=lambda slot: slot.last_release)

    def _release(self, request: Request) -> None:
        """The slot is free, and keeps what it computed."""
        slot = next(slot for slot in self.slots if slot.request is request)
        self._releases += 1
        slot.request, slot.tokens, slot.last_release = None, request.computed_tokens, self._releases
