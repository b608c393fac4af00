"""KV blocks of requests when some layers attend to a sliding window and nothing is cached: blocks are only counted."""

from __future__ import annotations

from sim.engine.cache.kv_cache import Hit
from sim.engine.cache.window_cache import Held, WindowCache
from sim.engine.request import Request


class WindowCounts(WindowCache):
    """Counts what ``WindowCache`` hands out where prefix caching is off."""

    def admit(self, request: Request, hit: Hit, tokens: int, *, others_running: bool) -> bool:  # noqa: ARG002
        """As in ``WindowCache``: nothing is hit."""
        blocks = self._blocks(self._reach(tokens))
        needed = len(self.groups) * blocks
        if self._reserve_full_prompt:
            whole = self._blocks(max(request.known_tokens, self._reach(tokens)))
            needed = max(needed, sum(group.capped(whole) for group in self.groups))
        if needed + (self._watermark if others_running else 0) > self.pool.free:
            return False
        self.pool.take_count(len(self.groups) * blocks)
        request.held = [Held(0, []) for _ in self.groups]
        self._set_end(request, blocks)
        request.visit_at = self._next_visit(request)
        return True

    def extend(self, request: Request, end: int) -> bool:
        """As in ``WindowCache``."""
        self.trim(request, request.computed_tokens - (request.in_flight_tokens if self._waits_for_steps else 0))
        fresh = self.missing(request, end)
        if fresh > self.pool.free:
            return False
        if fresh:
            self.pool.take_count(fresh)
            self._set_end(request, self._blocks(self._reach(end)))
        request.visit_at = self._next_visit(request)
        return True

    def trim(self, request: Request, settled: int) -> None:
        """Free what no token after the first ``settled`` attends to."""
        for group, held in zip(self.groups, request.held, strict=True):
            first = group.out_of_window(settled)
            if first > held.first:
                self.pool.give_count(first - held.first)
                held.first = first

    def missing(self, request: Request, end: int) -> int:
        """Blocks that a running request lacks for its first ``end`` tokens."""
        return len(self.groups) * max(0, self._blocks(self._reach(end)) - request.held[0].end)

    def settle(self, request: Request, settled: int | None) -> None:
        """Note what a request holds that has left a steady batch, which trimmed it up to ``settled`` tokens."""
        self._set_end(request, self._blocks(request.computed_tokens))
        if settled is not None:
            for group, held in zip(self.groups, request.held, strict=True):
                held.first = max(held.first, group.out_of_window(settled))
        request.visit_at = self._next_visit(request)

    def release(self, request: Request) -> None:
        """Free all blocks of a request."""
        self.pool.give_count(sum(held.end - held.first for held in request.held))
        request.held = []

    def _set_end(self, request: Request, end: int) -> None:
        for held in request.held:
            held.end = end
