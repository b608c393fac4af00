"""KV blocks of requests when some layers attend to a sliding window: one block table per group of layers.

All groups take from one pool. A window group frees the blocks that have fallen out of its window, and a prefix is hit
only as far as every group still has what it needs.
"""

from __future__ import annotations

from sim.engine.cache.blocks import Block, BlockPool, unheld
from sim.engine.cache.kv_cache import Hit
from sim.engine.cache.prompts import full_block_keys
from sim.engine.cache.rounding import blocks_for
from sim.engine.request import Request
from sim.engine.settings import EngineSettings


class Held:
    """Blocks that a request holds in one group: index ``first`` up to ``end``; those before are freed or unused."""

    __slots__ = ("blocks", "end", "first")

    def __init__(self, first: int, blocks: list[Block]) -> None:
        self.first = first
        self.end = first + len(blocks)
        self.blocks = blocks

    def add(self, blocks: list[Block]) -> None:
        """Further blocks."""
        self.blocks += blocks
        self.end += len(blocks)


class Group:
    """Layers that share a block table: full attention (``window`` None), or one sliding window."""

    def __init__(self, index: int, window: int | None, settings: EngineSettings, *, steps_in_flight: int) -> None:
        self.index = index
        self.window = window
        self.block_tokens = settings.block_tokens
        self.run = 0 if window is None else blocks_for(window - 1, settings.block_tokens)
        """Cached blocks in a row that a hit of a window group must end with."""
        self.most_blocks: int | None = None
        """The most that one request may ever hold: its window, and what steps add before it is trimmed."""
        if window is not None:
            tokens = min(window - 1 + steps_in_flight * settings.max_batched_tokens, settings.max_model_len)
            self.most_blocks = blocks_for(tokens, settings.block_tokens) + 1

    def capped(self, blocks: int) -> int:
        """``blocks``, or what a request ever holds if that is less."""
        return blocks if self.most_blocks is None else min(blocks, self.most_blocks)

    def key(self, key: int) -> int:
        """A block of the same tokens is another block in every group."""
        return hash((key, self.index)) if self.index else key

    def out_of_window(self, computed_tokens: int) -> int:
        """Leading blocks that no further token attends to."""
        if self.window is None:
            return 0
        return max(0, computed_tokens - self.window + 1) // self.block_tokens

    def trimmed_at(self, held: Held) -> int | None:
        """The end of the first step that finds a further block out of the window."""
        return None if self.window is None else (held.first + 1) * self.block_tokens + self.window


class WindowCache:
    """As ``KvCache``, for several groups of layers."""

    windowed = True

    def __init__(self, settings: EngineSettings, *, unhashed_first: bool, waits_for_steps: bool) -> None:
        self.block_tokens = settings.block_tokens
        self.caching = settings.prefix_caching and settings.kv_blocks is not None
        usable = None if settings.kv_blocks is None else settings.kv_blocks - 1
        self.pool = BlockPool(usable, unhashed_first=unhashed_first)
        steps_in_flight = 2 if settings.async_scheduling and waits_for_steps else 1
        self.groups = [
            Group(index, window, settings, steps_in_flight=steps_in_flight)
            for index, window in enumerate(settings.kv_groups)
        ]
        self._waits_for_steps = waits_for_steps
        self._watermark = int(settings.watermark * (settings.kv_blocks or 0))
        self._reserve_full_prompt = settings.reserve_full_prompt
        self._lookahead_tokens = settings.lookahead_tokens
        self._max_tokens = settings.max_model_len
        self._dropped = int(settings.speculation is not None and settings.speculation.drops_last_hit_block)
        """Blocks at the end of a hit that are computed anew."""
        self._full_first = sorted(self.groups, key=lambda group: group.window is not None)

    def longest_computed_tokens(self) -> int | None:
        """Tokens that one request can have computed when it has the pool for itself; None: no limit.

        Counted as vLLM does at start-up and at admission: a window group may hold ``most_blocks``.
        """
        usable = self.pool.usable
        if usable is None:
            return None
        full = sum(group.window is None for group in self.groups)
        windows = [group.most_blocks for group in self.groups if group.most_blocks is not None]
        if not full and sum(windows) <= usable:
            return None
        blocks = usable // len(self.groups)
        if full:
            blocks = max(blocks, (usable - sum(windows)) // full)
        while (blocks + 1) * full + sum(min(blocks + 1, most) for most in windows) <= usable:
            blocks += 1
        return blocks * self.block_tokens

    def hit(self, request: Request) -> Hit:
        """The longest prefix that all groups have cached; the last known token is always computed anew."""
        if not self.caching:
            return Hit(0, tuple([] for _ in self.groups))
        length = (request.known_tokens - 1) // self.block_tokens
        keys = full_block_keys(request, self.block_tokens, length)
        before = None
        while length != before:
            before = length
            for group in self._full_first:
                length = self._match(group, keys, length)
        length = max(0, length - self._dropped)
        return Hit(length * self.block_tokens, tuple(self._shared(group, keys, length) for group in self.groups))

    def _match(self, group: Group, keys: list[int], length: int) -> int:
        """How much of the first ``length`` blocks this group can offer."""
        cached = self.pool.cached
        if group.window is None:
            for index in range(length):
                if cached(group.key(keys[index])) is None:
                    return index
            return length
        run = 0
        for index in range(length - 1, -1, -1):
            if run == group.run + self._dropped:
                return index + 1 + run
            run = run + 1 if cached(group.key(keys[index])) is not None else 0
        return run

    def _shared(self, group: Group, keys: list[int], length: int) -> list[Block]:
        first = 0 if group.window is None else max(0, length - group.run)
        found = (self.pool.cached(group.key(key)) for key in keys[first:length])
        return [block for block in found if block is not None]

    def admit(self, request: Request, hit: Hit, tokens: int, *, others_running: bool) -> bool:
        """Give a waiting request its hit and the blocks of its first ``tokens``; False if they do not fit.

        With ``reserve_full_prompt`` all its known tokens must fit, of a window group no more than it ever holds.
        """
        length, end = hit.tokens // self.block_tokens, hit.tokens + tokens
        reach = self._reach(end)
        revived = sum(map(unheld, hit.groups))
        needed = len(self.groups) * (self._blocks(reach) - length)
        if self._reserve_full_prompt:
            whole = self._blocks(max(request.known_tokens, reach))
            needed = max(needed, sum(max(0, group.capped(whole) - length) for group in self.groups))
        if needed + revived + (self._watermark if others_running else 0) > self.pool.free:
            return False
        for blocks in hit.groups:
            self.pool.hold(blocks)
        request.held = [Held(length - len(blocks), blocks) for blocks in hit.groups]
        for held in request.held:
            held.add(self.pool.take(self._blocks(reach) - held.end))
        request.registered_blocks = length
        self.register(request, min(end, request.known_tokens))
        return True

    def extend(self, request: Request, end: int) -> bool:
        """Free what fell out of the windows, then take blocks up to ``end`` tokens; False if they are not free."""
        settled = request.computed_tokens - (request.in_flight_tokens if self._waits_for_steps else 0)
        for group, held in zip(self.groups, request.held, strict=True):
            drop = min(group.out_of_window(settled) - held.first, len(held.blocks))
            if drop > 0:
                self.pool.give(held.blocks[:drop])
                del held.blocks[:drop]
                held.first += drop
        reach = self._reach(end)
        fresh = [max(0, self._blocks(reach) - held.end) for held in request.held]
        if sum(fresh) > self.pool.free:
            return False
        for held, count in zip(request.held, fresh, strict=True):
            held.add(self.pool.take(count))
        self.register(request, min(end, request.known_tokens))
        return True

    def register(self, request: Request, tokens: int) -> None:
        """Blocks filled by the first ``tokens`` may be hit from now on."""
        full = tokens // self.block_tokens
        if self.caching and full > request.registered_blocks:
            keys = full_block_keys(request, self.block_tokens, full)
            for group, held in zip(self.groups, request.held, strict=True):
                for index in range(max(request.registered_blocks, held.first), full):
                    self.pool.register(held.blocks[index - held.first], group.key(keys[index]))
            request.registered_blocks = full
        request.register_at = (request.registered_blocks + 1) * self.block_tokens
        request.visit_at = self._next_visit(request)

    def _next_visit(self, request: Request) -> int:
        at = request.held[0].end * self.block_tokens + 1 - self._lookahead_tokens
        if self.caching:
            at = min(at, request.register_at)
        trims = (group.trimmed_at(held) for group, held in zip(self.groups, request.held, strict=True))
        return min([at, *(trim for trim in trims if trim is not None)])

    def release(self, request: Request) -> None:
        """Free all blocks of a request, group by group."""
        for held in request.held:
            self.pool.give(held.blocks)
        request.held = []
        request.registered_blocks = 0

    def _reach(self, end: int) -> int:
        """The tokens that a step which ends at ``end`` needs slots for."""
        return min(end + self._lookahead_tokens, self._max_tokens)

    def _blocks(self, tokens: int) -> int:
        return blocks_for(tokens, self.block_tokens)
