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
    """``usable`` blocks, shared by all requests of one engine; None: as many as anyone asks for.

    ``unhashed_first``: freed blocks without a key go to the front of the queue (vLLM since 0.25); before, to its tail
    like all others.
    """

    def __init__(self, usable: int | None, *, unhashed_first: bool) -> None:
        self.usable = usable
        self.free = usable if usable is not None else 1 << 62
        self._unhashed_first = unhashed_first
        self._blank = self.free
        """Free blocks without a key at the front of the queue."""
        self._queue: OrderedDict[Block, None] = OrderedDict()
        """Free blocks behind them, next first."""
        self._oldest: dict[int, Block] = {}
        """The copy of each key that is hit: the first that was registered and is still there."""
        self._later: dict[int, list[Block]] = {}
        """Further copies, oldest first: equal blocks are not merged."""

    @property
    def used(self) -> int:
        return 0 if self.usable is None else self.usable - self.free

    def take_count(self, count: int) -> None:
        """Take blocks that nothing will be cached in; the caller has checked that they are free."""
        self.free -= count
        self._blank -= count

    def give_count(self, count: int) -> None:
        """Give back blocks taken with ``take_count``."""
        self.free += count
        self._blank += count

    def take(self, count: int) -> list[Block]:
        """Take blocks from the front of the queue, evicting what they cached."""
        self.free -= count
        blank = min(count, self._blank)
        self._blank -= blank
        taken = [Block() for _ in range(blank)]
        for _ in range(count - blank):
            block, _ = self._queue.popitem(last=False)
            if block.key is not None:
                self._evict(block, block.key)
            block.holders = 1
            taken.append(block)
        return taken

    def give(self, blocks: list[Block]) -> None:
        """A request's blocks are freed, its tail first; cached ones can still be hit."""
        for block in reversed(blocks):
            block.holders -= 1
            if block.holders:
                continue
            self.free += 1
            if block.key is None and self._unhashed_first:
                self._blank += 1
            else:
                self._queue[block] = None

    def register(self, block: Block, key: int) -> None:
        """A block is (scheduled to be) full: others may hit it from now on."""
        block.key = key
        if self._oldest.setdefault(key, block) is not block:
            self._later.setdefault(key, []).append(block)

    def cached(self, key: int) -> Block | None:
        """The oldest live copy of a key."""
        return self._oldest.get(key)

    def hold(self, blocks: list[Block]) -> None:
        """A request shares cached blocks: free ones leave the queue, which is how a hit refreshes them."""
        for block in blocks:
            if not block.holders:
                del self._queue[block]
                self.free -= 1
            block.holders += 1

    def _evict(self, block: Block, key: int) -> None:
        block.key = None
        later = self._later.get(key)
        if later is None:
            del self._oldest[key]
            return
        if self._oldest[key] is block:
            self._oldest[key] = later.pop(0)
        else:
            later.remove(block)
        if not later:
            del self._later[key]


def unheld(blocks: list[Block]) -> int:
    """How many of these cached blocks lie in the free queue."""
    return sum(not block.holders for block in blocks)
