"""KV blocks of TensorRT-LLM: given per request, kept in a tree for reuse, and evicted leaf by leaf.

Unlike vLLM a block can be reused only after the step that filled it is completed: the prompt's when its last chunk is,
the answer's when the request ends or is paused. A request that computed a block which is in the tree already keeps
its own copy, which nobody can reuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sim.engine.cache.blocks import Block, BlockPool
from sim.engine.cache.prompts import full_block_keys
from sim.engine.cache.rounding import blocks_for
from sim.engine.request import Request


class ReusePool(BlockPool):
    """Blocks in the tree hang below the block of the tokens before them; all are of one priority, so LRU decides."""

    def __init__(self, usable: int | None) -> None:
        super().__init__(usable, unhashed_first=True)
        self._parent: dict[Block, Block] = {}
        self._children: dict[Block, dict[Block, None]] = {}

    def take(self, count: int) -> list[Block]:
        """Take free blocks: those that cache nothing, then the leaves of the tree that were freed longest ago."""
        taken = super().take(min(count, self._blank))
        while len(taken) < count:
            block = self._next_leaf()
            del self._queue[block]
            self.free -= 1
            self._cut(block)
            block.holders = 1
            taken.append(block)
        return taken

    def store(self, blocks: list[Block], keys: list[int]) -> None:
        """Blocks of one request, from its first on, can be reused from now on."""
        parent: Block | None = None
        for block, key in zip(blocks, keys, strict=False):
            stored = self._oldest.setdefault(key, block)
            if stored is block and block.key is None:
                block.key = key
                if parent is not None:
                    self._parent[block] = parent
                    self._children.setdefault(parent, {})[block] = None
            parent = stored

    def _next_leaf(self) -> Block:
        # A free block has a held descendant where a request computed a copy of it and stored what came after:
        # only if all free blocks are such is one evicted that is no leaf.
        return next((block for block in self._queue if block not in self._children), next(iter(self._queue)))

    def _cut(self, block: Block) -> None:
        """Take a block out of the tree, and what hangs below it: it could not be reached any more."""
        parent = self._parent.get(block)
        if parent is not None:
            siblings = self._children[parent]
            del siblings[block]
            if not siblings:
                del self._children[parent]
        lost = [block]
        while lost:
            cut = lost.pop()
            lost += self._children.pop(cut, {})
            self._parent.pop(cut, None)
            if cut.key is not None:
                del self._oldest[cut.key]
                cut.key = None


class ReuseCache:
    """What requests hold. ``usable``: all blocks there are (no null block); None: no limit, and nothing is reused."""

    def __init__(self, usable: int | None, block_tokens: int, *, reuse: bool) -> None:
        self.block_tokens = block_tokens
        self.reuse = reuse and usable is not None
        self.pool = ReusePool(usable)
        self._taken: list[Block] = []
        """Blocks taken for requests in a steady batch that are not yet said to be this or that one's."""

    @property
    def free(self) -> int:
        """Blocks nobody holds, reusable or not."""
        return self.pool.free

    def blocks(self, tokens: int) -> int:
        """Blocks of this many tokens."""
        return blocks_for(tokens, self.block_tokens)

    def prefix(self, request: Request) -> list[Block]:
        """The longest prefix in the tree, in full blocks; the last known token is always computed anew."""
        found: list[Block] = []
        for key in self._keys(request):
            block = self.pool.cached(key)
            if block is None:
                break
            found.append(block)
        return found

    def first_new_key(self, request: Request) -> int | None:
        """The key of the first block that others may reuse once this request's context is computed."""
        return next((key for key in self._keys(request) if self.pool.cached(key) is None), None)

    def share(self, request: Request, blocks: list[Block]) -> None:
        """A request that begins holds what it reuses."""
        self.pool.hold(blocks)
        request.blocks = blocks
        request.block_count = len(blocks)

    def cover(self, request: Request, tokens: int) -> None:
        """Give a request the blocks of its first ``tokens``; the scheduler has seen that they are free.

        There is nothing to do below ``request.visit_at``.
        """
        fresh = self.blocks(tokens) - request.block_count
        assert fresh <= self.pool.free, f"{fresh} blocks are needed and {self.pool.free} free"
        request.block_count += fresh
        request.visit_at = request.block_count * self.block_tokens + 1
        if self.reuse:
            request.blocks += self.pool.take(fresh)
        else:
            self.pool.take_count(fresh)

    def take(self, count: int) -> None:
        """Blocks for requests in a steady batch: which of them gets which makes no difference while they hold them."""
        if self.reuse:
            self._taken += self.pool.take(count)
        else:
            self.pool.take_count(count)

    def settle(self, request: Request) -> None:
        """Give a request that has left the steady batch its part of what was taken there."""
        before, count = request.block_count, self.blocks(request.computed_tokens)
        if count > before:
            request.block_count = count
            request.visit_at = count * self.block_tokens + 1
            if self.reuse:
                at = before - count
                request.blocks += self._taken[at:]
                del self._taken[at:]

    def store(self, request: Request) -> None:
        """The full blocks of what a request has computed and knows can be reused."""
        if self.reuse:
            full = min(request.computed_tokens, request.known_tokens) // self.block_tokens
            self.pool.store(request.blocks[:full], full_block_keys(request, self.block_tokens, full))

    def release(self, request: Request) -> None:
        """Free all blocks of a request, its tail first; what is full stays in the tree."""
        if self.reuse:
            self.store(request)
            self.pool.give(request.blocks)
            request.blocks = []
        else:
            self.pool.give_count(request.block_count)
        request.block_count = request.visit_at = 0

    def _keys(self, request: Request) -> Iterator[int]:
        if not self.reuse:
            return iter(())
        most = (request.known_tokens - 1) // self.block_tokens
        return islice(full_block_keys(request, self.block_tokens, most), most)
