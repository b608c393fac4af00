"""TensorRT-LLM's first stage: which requests may take part in an iteration (``capacityScheduler.cpp``).

A request is in its context phase until all of its prompt, and what it had generated before a pause, is scheduled;
then it generates. Asked for blocks, a context wants those of all its tokens with its first chunk. What it may reuse
is not deducted.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Literal, NamedTuple

from sim.engine.cache.reuse_cache import ReuseCache
from sim.engine.queues import ARRIVAL, ArrivalQueue
from sim.engine.request import Request, Status

CapacityPolicy = Literal["guaranteed-no-evict", "max-utilization", "static-batch", "prefill-first"]


def in_context(request: Request) -> bool:
    """Its context is not all scheduled; ``register_at`` is where it ends."""
    return request.computed_tokens < request.register_at


def wholly_scheduled(request: Request) -> bool:
    """Its last token is in flight: it takes part in no further iteration and counts for no limit."""
    return request.computed_tokens >= request.most_computed_tokens


class Capacity(NamedTuple):
    """Requests that may take part, in the order the next stage walks them, and those to be paused."""

    fitting: list[Request]
    paused: list[Request]


class CapacityScheduler:
    """Requests that have begun, and those that wait, both by order of arrival, against slots and free blocks."""

    def __init__(self, policy: CapacityPolicy, max_sequences: int, cache: ReuseCache) -> None:
        self._policy = policy
        self._most = max_sequences
        self._cache = cache

    def fit(self, running: list[Request], waiting: ArrivalQueue) -> Capacity:
        """Apply the policy. Paused requests have lost their blocks; the caller moves them to the waiting ones."""
        if self._policy == "max-utilization":
            return self._max_utilization([request for request in running if not wholly_scheduled(request)], waiting)
        contexts: list[Request] = []
        generating: list[Request] = []
        for request in running:
            if in_context(request):
                contexts.append(request)
            elif not wholly_scheduled(request):
                generating.append(request)
        if self._policy == "static-batch" and generating:
            return Capacity(generating, [])
        promised = sum(map(self.to_completion, generating)) if contexts or waiting else 0
        fitting = self.contexts(len(generating), promised, contexts, waiting)
        alone = fitting and self._policy == "prefill-first"
        return Capacity(fitting if alone else generating + fitting, [])

    def contexts(self, generating: int, promised: int, begun: list[Request], waiting: ArrivalQueue) -> list[Request]:
        """Contexts that fit beside those that generate, which have ``promised`` blocks yet to take."""
        fitting = self._reservable(generating, promised, begun, waiting)
        if begun and not fitting and not generating:
            # A request that waited to reuse blocks may stand, not fitting, before contexts that have begun: by the
            # letter nothing would ever run again. What has begun has its blocks, and goes on.
            return self._reservable(generating, promised, begun, ())
        return fitting

    def _reservable(
        self, generating: int, promised: int, begun: list[Request], waiting: ArrivalQueue | tuple[()]
    ) -> list[Request]:
        """Contexts that fit: every block up to their end can be reserved, beside those of all that generate.

        The first that does not fit stops those behind it. A static batch skips none: it would leave without it.
        """
        fitting: list[Request] = []
        slots = self._most - generating
        if not slots or not (begun or waiting):
            return fitting
        free = self._cache.free - promised
        skips = Skips(self._cache, begun)
        for request in merge(begun, waiting, key=ARRIVAL):
            if len(fitting) >= slots:
                break
            if self._policy != "static-batch" and skips.better_later(request):
                continue
            free -= self.to_completion(request)
            if free < 0:
                break
            fitting.append(request)
        return fitting

    def _max_utilization(self, begun: list[Request], waiting: ArrivalQueue) -> Capacity:
        """All in order of arrival, each asking for the blocks of its next step only.

        For one that does not fit the last that has begun is paused, if need be itself, and ends the list: neither it
        nor any behind it takes part. With nobody left to pause, nothing behind takes part either.
        """
        fitting: list[Request] = []
        paused: list[Request] = []
        needed = 0
        skips = Skips(self._cache, begun)
        for request in _until_paused(merge(list(begun), waiting, key=ARRIVAL), paused):
            if skips.better_later(request):
                continue
            blocks = self._next_step(request)
            while len(fitting) >= self._most or needed + blocks > self._cache.free:
                if not begun or begun[-1].order < request.order:
                    return Capacity(fitting, paused)
                paused.append(begun.pop())
                self._cache.release(paused[-1])
                if paused[-1] is request:
                    return Capacity(fitting, paused)
            fitting.append(request)
            needed += blocks
        return Capacity(fitting, paused)

    def to_completion(self, request: Request) -> int:
        """Blocks that a request has yet to take up to its end."""
        return self._cache.blocks(request.most_tokens) - request.block_count

    def _next_step(self, request: Request) -> int:
        if request.status is not Status.RUNNING:
            return self._cache.blocks(request.known_tokens)
        return max(0, self._cache.blocks(request.computed_tokens + 1) - request.block_count)


class Skips:
    """Requests that wait an iteration, to reuse what an earlier context is computing in this one."""

    def __init__(self, cache: ReuseCache, begun: list[Request]) -> None:
        self._cache = cache
        keys = (cache.first_new_key(request) for request in begun if in_context(request))
        self._computed_now = {key for key in keys if key is not None}

    def better_later(self, request: Request) -> bool:
        """Its first chunk would compute a block that is being computed; else its own are from now on."""
        if request.status is Status.RUNNING:
            return False
        key = self._cache.first_new_key(request)
        if key is None:
            return False
        if key in self._computed_now:
            return True
        self._computed_now.add(key)
        return False


def _until_paused(requests: Iterator[Request], paused: list[Request]) -> Iterator[Request]:
    """Requests up to the one paused last, which may be appended while they are walked."""
    for request in requests:
        if paused and request.order >= paused[-1].order:
            return
        yield request
