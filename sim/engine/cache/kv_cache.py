"""KV blocks of requests when every layer keeps every token: prefix hits, growth, and release."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from sim.engine.cache.blocks import Block, BlockPool, unheld
from sim.engine.cache.prompts import full_block_keys
from sim.engine.request import Request
from sim.engine.settings import EngineSettings


class Hit(NamedTuple):
    """A cached prefix of ``tokens``, with the blocks that a request would share, per KV group."""

    tokens: int
    groups: tuple[list[Any], ...]


NO_HIT = Hit(0, ([],))


class KvCache:
    """Gives requests the blocks their computed tokens need.

    A request holds ceil(computed / block) blocks; a block is taken when its first token is scheduled, and registered
    for others to hit when its last one is.
    """

    windowed = False

    def __init__(self, settings: EngineSettings, *, unhashed_first: bool) -> None:
        self.block_tokens = settings.block_tokens
        self.caching = settings.prefix_caching and settings.kv_blocks is not None
        usable = None if settings.kv_blocks is None else settings.kv_blocks - 1
        self.pool = BlockPool(usable, unhashed_first=unhashed_first)
        self.watermark = int(settings.watermark * (settings.kv_blocks or 0))
        self._reserve_full_prompt = settings.reserve_full_prompt
        self._lookahead_tokens = settings.lookahead_tokens
        self._max_tokens = settings.max_model_len
        self._drops_last = settings.speculation is not None and settings.speculation.drops_last_hit_block

    def longest_computed_tokens(self) -> int | None:
        """Tokens that one request can have computed when it has the pool for itself; None: no limit."""
        return None if self.pool.usable is None else self.pool.usable * self.block_tokens

    def hit(self, request: Request) -> Hit:
        """The longest cached prefix; the last known token is always computed anew."""
        if not self.caching:
            return NO_HIT
        blocks: list[Block] = []
        most = (request.known_tokens - 1) // self.block_tokens
        for key in islice(full_block_keys(request, self.block_tokens, most), most):
            block = self.pool.cached(key)
            if block is None:
                break
            blocks.append(block)
        if self._drops_last:
            del blocks[-1:]
        return Hit(len(blocks) * self.block_tokens, (blocks,))

    def admit(self, request: Request, hit: Hit, tokens: int, *, others_running: bool) -> bool:
        """Give a waiting request its hit and the blocks of its first ``tokens``; False if they do not fit.

        With ``reserve_full_prompt`` all its known tokens must fit, though only the first are given blocks.
        """
        blocks = hit.groups[0]
        end = hit.tokens + tokens
        reach = self._reach(end)
        must_fit = max(request.known_tokens, reach) if self._reserve_full_prompt else reach
        needed = self._blocks(must_fit) - len(blocks) + unheld(blocks)
        if needed + (self.watermark if others_running else 0) > self.pool.free:
            return False
        fresh = self._blocks(reach) - len(blocks)
        request.block_count = len(blocks) + fresh
        if self.caching:
            self.pool.hold(blocks)
            request.blocks = blocks + self.pool.take(fresh)
            request.registered_blocks = len(blocks)
            self.register(request, min(end, request.known_tokens))
        else:
            self.pool.take_count(fresh)
            request.visit_at = self._outgrown_at(request)
        return True

    def extend(self, request: Request, end: int) -> bool:
        """Blocks for a running request's first ``end`` tokens; False if they are not free.

        There is nothing to do below ``request.visit_at``. What gets full is registered at once: a prompt admitted in
        this very step already hits it.
        """
        fresh = self._blocks(self._reach(end)) - request.block_count
        if fresh > 0:
            if fresh > self.pool.free:
                return False
            request.block_count += fresh
            if self.caching:
                request.blocks += self.pool.take(fresh)
            else:
                self.pool.take_count(fresh)
        if self.caching:
            self.register(request, min(end, request.known_tokens))
        else:
            request.visit_at = self._outgrown_at(request)
        return True

    def missing(self, request: Request, end: int) -> int:
        """Blocks that a running request lacks for its first ``end`` tokens."""
        return max(0, self._blocks(end) - request.block_count)

    def settle(self, request: Request) -> None:
        """Note the blocks of a request that has left a steady batch; nothing is cached there."""
        request.block_count = count = self._blocks(request.computed_tokens)
        request.visit_at = count * self.block_tokens + 1

    def register(self, request: Request, tokens: int) -> None:
        """Blocks filled by the first ``tokens`` may be hit from now on."""
        full = tokens // self.block_tokens
        if full > request.registered_blocks:
            keys = full_block_keys(request, self.block_tokens, full)
            for index in range(request.registered_blocks, full):
                self.pool.register(request.blocks[index], keys[index])
            request.registered_blocks = full
        request.register_at = (request.registered_blocks + 1) * self.block_tokens
        request.visit_at = min(request.register_at, self._outgrown_at(request))

    def release(self, request: Request) -> None:
        """Free all blocks of a request."""
        if self.caching:
            self.pool.give(request.blocks)
            request.blocks = []
            request.registered_blocks = 0
        else:
            self.pool.give_count(request.block_count)
        request.block_count = 0

    def _reach(self, end: int) -> int:
        """The tokens that a step which ends at ``end`` needs slots for."""
        return min(end + self._lookahead_tokens, self._max_tokens)

    def _outgrown_at(self, request: Request) -> int:
        """The end of the first step that needs a further block."""
        return request.block_count * self.block_tokens + 1 - self._lookahead_tokens

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
