"""KV blocks as ``KvCache`` keeps them, in runs: blocks that follow each other in a prompt are one thing, not many.

A prefix cache of blocks has a property that makes this exact: whoever holds a block holds all before it, and blocks are
freed tail first. So of blocks that one request computed in a row others hold a beginning, the rest of it lies in the
free queue, and what is evicted goes from the end. All work is per run of blocks, however long.
"""

from __future__ import annotations

from collections import deque

from sim.engine.cache.kv_cache import Hit
from sim.engine.cache.prompts import block_runs
from sim.engine.request import Request
from sim.engine.settings import EngineSettings


class Piece:
    """Blocks with the keys ``base + start`` to ``base + end - 1``, registered by one request at one time."""

    __slots__ = ("base", "end", "holds", "queued", "rest", "start", "top")

    def __init__(self, base: int, start: int, end: int) -> None:
        self.base = base
        self.start = start
        self.end = end
        """Blocks from here on are evicted, or were never there."""
        self.top = end
        """Blocks from here on are free."""
        self.holds: dict[int, int] = {end: 1}
        """Up to where requests hold it, and how many of them."""
        self.queued: list[Part] = []
        """Its free blocks in the queue, next to be taken first: the highest."""
        self.rest: Piece | None = None
        """What was split off its end; who holds more than is left here holds that too."""


class Part:
    """Free blocks in the queue, taken from ``high - 1`` down to ``low``; without a piece they have no key."""

    __slots__ = ("high", "low", "piece", "then")

    def __init__(self, piece: Piece | None, low: int, high: int) -> None:
        self.piece = piece
        self.low = low
        self.high = high
        self.then: Part | None = None
        """What is taken right after it, where it was split."""

    @property
    def empty(self) -> bool:
        """All of it was hit again."""
        return self.low == self.high and self.then is None


class RunPool:
    """As ``BlockPool``."""

    def __init__(self, usable: int, *, unhashed_first: bool) -> None:
        self.usable = usable
        self.free = usable
        self._unhashed_first = unhashed_first
        self._blank = usable
        self._queue: deque[Part] = deque()
        self._pieces: dict[int, list[Piece]] = {}
        """By base; of several the one registered first goes first."""

    @property
    def used(self) -> int:
        return self.usable - self.free

    def take_count(self, count: int) -> None:
        """Take blocks from the front of the queue, evicting what they cached; the caller has checked they are free."""
        self.free -= count
        blank = min(count, self._blank)
        self._blank -= blank
        count -= blank
        while count:
            part = self._queue[0]
            taken = min(part.high - part.low, count)
            part.high -= taken
            count -= taken
            if part.piece is not None and taken:
                self._evict(part.piece, part)
            if part.low == part.high:
                if part.then is None:
                    self._queue.popleft()
                else:
                    self._queue[0] = part.then

    def _evict(self, piece: Piece, part: Part) -> None:
        """The end of a piece was taken."""
        piece.end = part.high
        if part.low == part.high:
            piece.queued.remove(part)
            if piece.end == piece.start and not piece.holds:
                self._forget(piece)

    def _forget(self, piece: Piece) -> None:
        alike = self._pieces[piece.base]
        alike.remove(piece)
        if not alike:
            del self._pieces[piece.base]

    def give_unkeyed(self, count: int) -> None:
        """Free blocks that nothing is cached in."""
        self.free += count
        if self._unhashed_first:
            self._blank += count
        elif count:
            self._queue.append(Part(None, 0, count))

    def register(self, base: int, start: int, end: int) -> Piece:
        """Blocks that the caller holds may be hit from now on."""
        piece = Piece(base, start, end)
        self._pieces.setdefault(base, []).append(piece)
        return piece

    def extend(self, piece: Piece, start: int, end: int) -> bool:
        """Register further blocks as part of a piece that the caller holds; False if they must be one of their own.

        That is if it goes on otherwise, or if another piece of its base may have been registered in between.
        """
        if piece.end != start or piece.rest is not None or len(self._pieces[piece.base]) > 1:
            return False
        self._unhold_mark(piece, piece.end)
        piece.end = piece.top = end
        piece.holds[end] = piece.holds.get(end, 0) + 1
        return True

    def find(self, base: int, blocks: int) -> list[tuple[Piece, int, int]]:
        """What is cached of the first ``blocks`` keys of a base, as (piece, from, to): of equal ones the oldest."""
        alike = self._pieces.get(base)
        if alike is None:
            return []
        if len(alike) == 1:
            piece = alike[0]
            return [(piece, 0, min(piece.end, blocks))] if piece.start == 0 < piece.end else []
        found: list[tuple[Piece, int, int]] = []
        at = 0
        while at < blocks:
            rank = next((i for i, piece in enumerate(alike) if piece.start <= at < piece.end), None)
            if rank is None:
                break
            older = [piece.start for piece in alike[:rank] if at < piece.start < piece.end]
            to = min([alike[rank].end, blocks, *older])
            found.append((alike[rank], at, to))
            at = to
        return found

    def hold(self, piece: Piece, start: int, end: int) -> tuple[Piece, int]:
        """A request shares blocks of a piece: free ones leave the queue. Returns the piece and its end of them."""
        while piece.rest is not None and start >= piece.rest.start:
            piece = piece.rest
        if start > piece.start:
            piece = self._split(piece, start)
        if end > piece.top:
            self.free -= end - piece.top
            while piece.queued and piece.queued[-1].high <= end:
                part = piece.queued.pop()
                part.low = part.high
            if piece.queued and piece.queued[-1].low < end:
                piece.queued[-1].low = end
            piece.top = end
        piece.holds[end] = piece.holds.get(end, 0) + 1
        return piece, end

    def unhold(self, piece: Piece, end: int) -> None:
        """A request holds it no longer: what nobody else holds goes to the end of the queue, tail first."""
        if piece.rest is not None and end > piece.rest.start:
            self.unhold(piece.rest, end)
            end = piece.rest.start
        self._unhold_mark(piece, end)
        if end == piece.top and end not in piece.holds:
            top = max(piece.holds, default=piece.start)
            part = Part(piece, top, end)
            piece.queued.append(part)
            while self._queue and self._queue[-1].empty:
                self._queue.pop()
            self._queue.append(part)
            self.free += end - top
            piece.top = top

    def _unhold_mark(self, piece: Piece, end: int) -> None:
        left = piece.holds[end] - 1
        if left:
            piece.holds[end] = left
        else:
            del piece.holds[end]

    def _split(self, piece: Piece, at: int) -> Piece:
        """Cut a piece in two, since a request hits its blocks from ``at`` on and not those before."""
        rest = Piece(piece.base, at, piece.end)
        rest.rest, piece.rest = piece.rest, rest
        rest.holds = {end: count for end, count in piece.holds.items() if end > at}
        rest.top = max(piece.top, at)
        held = sum(rest.holds.values())
        piece.holds = {end: count for end, count in piece.holds.items() if end <= at}
        if held:
            piece.holds[at] = piece.holds.get(at, 0) + held
        piece.end, piece.top = min(piece.end, at), min(piece.top, at)
        rest.queued = [self._divide(part, rest, at) for part in piece.queued if part.high > at]
        piece.queued = [part for part in map(_kept, piece.queued, [piece] * len(piece.queued)) if part is not None]
        alike = self._pieces[piece.base]
        alike.insert(alike.index(piece) + 1, rest)
        return rest

    def _divide(self, part: Part, rest: Piece, at: int) -> Part:
        """Hand the blocks of a part from ``at`` on over to ``rest``; those before are taken right after them."""
        if part.low < at:
            lower = Part(part.piece, part.low, at)
            lower.then, part.then = part.then, lower
            part.low = at
        part.piece = rest
        return part


def _kept(part: Part, piece: Piece) -> Part | None:
    """The part that is left to a piece of what it had in the queue, after a split."""
    if part.piece is piece:
        return part
    lower = part.then
    return lower if lower is not None and lower.piece is piece else None


class RunCache:
    """As ``KvCache`` with prefix caching, for engines that keep their decodes as sums.

    The blocks that answers fill are registered late: when their request leaves the steady batch, or, once some prompt
    has held somebody's answer, before every look at the queue.
    """

    windowed = False
    caching = True

    def __init__(self, settings: EngineSettings, *, unhashed_first: bool) -> None:
        assert settings.kv_blocks is not None, "an unlimited pool caches nothing"
        self.block_tokens = settings.block_tokens
        self.pool = RunPool(settings.kv_blocks - 1, unhashed_first=unhashed_first)
        self.watermark = int(settings.watermark * settings.kv_blocks)
        self._reserve_full_prompt = settings.reserve_full_prompt

    def longest_computed_tokens(self) -> int:
        """Tokens that one request can have computed when it has the pool for itself."""
        return self.pool.usable * self.block_tokens

    def hit(self, request: Request) -> Hit:
        """The longest cached prefix; the last known token is always computed anew."""
        most = (request.known_tokens - 1) // self.block_tokens
        found: list[tuple[Piece, int, int]] = []
        length = 0
        for first, base, count in self._runs(request):
            wanted = min(count, most - first)
            if wanted <= 0:
                break
            pieces = self.pool.find(base, wanted)
            if not pieces:
                break
            found += pieces
            length = first + pieces[-1][2]
            if pieces[-1][2] < wanted:
                break
        return Hit(length * self.block_tokens, (found,))

    def admit(self, request: Request, hit: Hit, tokens: int, *, others_running: bool) -> bool:
        """Give a waiting request its hit and the blocks of its first ``tokens``; False if they do not fit."""
        pool, shared, end = self.pool, hit.groups[0], hit.tokens + tokens
        length = hit.tokens // self.block_tokens
        must_fit = max(request.known_tokens, end) if self._reserve_full_prompt else end
        revived = sum([max(0, to - max(at, piece.top)) for piece, at, to in shared])
        needed = self._blocks(must_fit) - length + revived
        if needed + (self.watermark if others_running else 0) > pool.free:
            return False
        request.held_pieces = [pool.hold(piece, at, to) for piece, at, to in shared]
        request.block_count = self._blocks(end)
        pool.take_count(request.block_count - length)
        request.registered_blocks = length
        request.run_index = 0
        self.register(request, min(end, request.known_tokens))
        return True

    def extend(self, request: Request, end: int) -> bool:
        """Blocks for a running request's first ``end`` tokens; False if they are not free."""
        fresh = self._blocks(end) - request.block_count
        if fresh > 0:
            if fresh > self.pool.free:
                return False
            request.block_count += fresh
            self.pool.take_count(fresh)
        self.register(request, min(end, request.known_tokens))
        return True

    def missing(self, request: Request, end: int) -> int:
        """Blocks that a running request lacks for its first ``end`` tokens."""
        return max(0, self._blocks(end) - request.block_count)

    def settle(self, request: Request) -> None:
        """Note the blocks of a request that has left the steady batch."""
        request.block_count = self._blocks(request.computed_tokens)
        self.register(request, min(request.computed_tokens - request.placeholders, request.known_tokens))

    def register(self, request: Request, tokens: int) -> None:
        """Blocks filled by the first ``tokens`` may be hit from now on."""
        full, at = tokens // self.block_tokens, request.registered_blocks
        runs, held = self._runs(request), request.held_pieces
        while at < full:
            first, base, count = runs[request.run_index]
            if at >= first + count:
                request.run_index += 1
                continue
            start, end = at - first, min(full - first, count)
            last = held[-1][0] if held else None
            if last is not None and last.base == base and held[-1][1] == start and self.pool.extend(last, start, end):
                held[-1] = (last, end)
            else:
                held.append((self.pool.register(base, start, end), end))
            at = first + end
        request.registered_blocks = max(full, request.registered_blocks)
        request.register_at = (request.registered_blocks + 1) * self.block_tokens
        request.visit_at = min(request.register_at, request.block_count * self.block_tokens + 1)

    def release(self, request: Request) -> None:
        """Free all blocks of a request."""
        self.pool.give_unkeyed(request.block_count - request.registered_blocks)
        for piece, end in reversed(request.held_pieces):
            self.pool.unhold(piece, end)
        request.held_pieces = []
        request.registered_blocks = 0
        request.block_count = 0

    def _runs(self, request: Request) -> list[tuple[int, int, int]]:
        if not request.runs:
            request.runs = block_runs(request, self.block_tokens)
        return request.runs

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
