"""The KV block pool: who holds blocks, which free ones are still cached, and which is taken next.

Mirrors vLLM's ``BlockPool`` and ``FreeKVCacheBlockQueue``: the next block comes from the front of a queue; taking one
that carries a key evicts it. Blocks without a key are all alike, so those at the front are only counted.
"""

from __future__ import annotations

from collections import OrderedDict


class Block:
    """One KV block that may be cached: its key, and how many requests hold it."""

    __slots__ = ("holders", "key")

    def __init__(self) -> None:
        self.key: int | None = None
        self.holders = 1


class BlockPool:
    """``usable`` blocks, shared by all requests of one engine.

    With ``caching`` off blocks are a count. ``unhashed_first``: freed blocks without a key go to the front of the queue
    (vLLM since 0.25); before, to its tail like all others.
    """

    def __init__(self, usable: int | None, *, caching: bool, unhashed_first: bool) -> None:
        self.usable = usable
        self.caching = caching
        self._unhashed_first = unhashed_first
        self._blank = usable if usable is not None else 1 << 62
        """Free blocks without a key at the front of the queue."""
        self._queue: OrderedDict[Block, None] = OrderedDict()
        """Free blocks behind them, next first."""
        self._cached: dict[int, list[Block]] = {}
        """Live copies of each key, oldest first."""

    @property
    def free(self) -> int:
        return self._blank + len(self._queue)

    @property
    def used(self) -> int:
        return 0 if self.usable is None else self.usable - self.free

    def take_count(self, count: int) -> None:
        """Take blocks without caching; the caller has checked that they are free."""
        self._blank -= count

    def give_count(self, count: int) -> None:
        """Give back blocks taken with ``take_count``."""
        self._blank += count

    def take(self, count: int) -> list[Block]:
        """Take blocks from the front of the queue, evicting what they cached."""
        blank = min(count, self._blank)
        self._blank -= blank
        taken = [Block() for _ in range(blank)]
        for _ in range(count - blank):
            block, _ = self._queue.popitem(last=False)
            self._evict(block)
            block.holders = 1
            taken.append(block)
        return taken

    def give(self, blocks: list[Block]) -> None:
        """A request's blocks are freed, its tail first; cached ones can still be hit."""
        for block in reversed(blocks):
            block.holders -= 1
            if block.holders:
                continue
            if block.key is None and self._unhashed_first:
                self._blank += 1
            else:
                self._queue[block] = None

    def register(self, block: Block, key: int) -> None:
        """A block is (scheduled to be) full: others may hit it from now on."""
        block.key = key
        copies = self._cached.get(key)
        if copies is None:
            self._cached[key] = [block]
        else:
            copies.append(block)

    def cached(self, key: int) -> Block | None:
        """The oldest live copy of a key."""
        copies = self._cached.get(key)
        return copies[0] if copies else None

    def unheld(self, blocks: list[Block]) -> int:
        """How many of these cached blocks lie in the free queue."""
        return sum(not block.holders for block in blocks)

    def hold(self, blocks: list[Block]) -> None:
        """A request shares cached blocks: free ones leave the queue, which is how a hit refreshes them."""
        for block in blocks:
            if not block.holders:
                del self._queue[block]
            block.holders += 1

    def _evict(self, block: Block) -> None:
        if block.key is None:
            return
        copies = self._cached[block.key]
        copies.remove(block)
        if not copies:
            del self._cached[block.key]
        block.key = None
