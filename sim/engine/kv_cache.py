"""KV blocks of requests: prefix hits, growth, and release."""

from __future__ import annotations

from sim.engine.blocks import Block, BlockPool
from sim.engine.prompts import block_keys
from sim.engine.request import Request
from sim.engine.settings import EngineSettings


class KvCache:
    """Gives requests the blocks their computed tokens need.

    A request holds ceil(computed / block) blocks; a block is taken when its first token is scheduled, and registered
    for others to hit when its last one is.
    """

    def __init__(self, settings: EngineSettings, *, unhashed_first: bool) -> None:
        self.block_tokens = settings.block_tokens
        self.caching = settings.prefix_caching and settings.kv_blocks is not None
        usable = None if settings.kv_blocks is None else settings.kv_blocks - 1
        self.pool = BlockPool(usable, caching=self.caching, unhashed_first=unhashed_first)
        self._watermark = int(settings.watermark * (settings.kv_blocks or 0))
        self._reserve_full_prompt = settings.reserve_full_prompt

    def hit(self, request: Request) -> list[Block]:
        """The longest cached prefix; the last known token is always computed anew."""
        if not self.caching:
            return []
        blocks: list[Block] = []
        keys = request.keys
        for index in range((request.known_tokens - 1) // self.block_tokens):
            block = self.pool.cached(keys[index] if index < len(keys) else self._key(request, index))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def admit(self, request: Request, hit: list[Block], tokens: int, *, others_running: bool) -> bool:
        """Give a waiting request its hit and the blocks of its first ``tokens``; False if they do not fit.

        With ``reserve_full_prompt`` all its known tokens must fit, though only the first are given blocks.
        """
        hit_tokens = len(hit) * self.block_tokens
        chunk_end = hit_tokens + tokens
        checked_tokens = max(request.known_tokens, chunk_end) if self._reserve_full_prompt else chunk_end
        needed = self._blocks(checked_tokens) - len(hit) + self.pool.unheld(hit)
        if needed + (self._watermark if others_running else 0) > self.pool.free:
            return False
        fresh = self._blocks(chunk_end) - len(hit)
        if self.caching:
            self.pool.hold(hit)
            request.blocks = hit + self.pool.take(fresh)
            request.registered_blocks = len(hit)
        else:
            self.pool.take_count(fresh)
        request.block_count = len(hit) + fresh
        return True

    def grow(self, request: Request, computed_tokens: int) -> bool:
        """Blocks for a running request up to ``computed_tokens``; False if they are not free."""
        fresh = self._blocks(computed_tokens) - request.block_count
        if fresh > 0:
            if fresh > self.pool.free:
                return False
            if self.caching:
                request.blocks += self.pool.take(fresh)
            else:
                self.pool.take_count(fresh)
            request.block_count += fresh
        return True

    def register(self, request: Request, tokens: int) -> None:
        """Blocks filled by the first ``tokens`` may be hit from now on."""
        full = tokens // self.block_tokens
        while request.registered_blocks < full:
            index = request.registered_blocks
            self.pool.register(request.blocks[index], self._key(request, index))
            request.registered_blocks += 1

    def release(self, request: Request) -> None:
        """Free all blocks of a request."""
        if self.caching:
            self.pool.give(request.blocks)
            request.blocks = []
            request.registered_blocks = 0
        else:
            self.pool.give_count(request.block_count)
        request.block_count = 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def _key(self, request: Request, index: int) -> int:
        keys = request.keys
        if request.key_source is None:
            request.key_source = block_keys(request, self.block_tokens)
        while len(keys) <= index:
            keys.append(next(request.key_source))
        return keys[index]
