"""The decodes of a batch as sums: requests that get exactly one token in every step, whatever else happens.

A request joins in the step that samples its first token (or the first after a pause) and leaves when it may get no
more. In between nothing about it needs to be touched: its tokens follow from how many steps were scheduled and
completed since, and so do the step that takes its next KV block and the one that ends it.
"""

from __future__ import annotations

import heapq

from sim.engine.request import Request

NEVER = 1 << 62
Due = tuple[int, int, Request]
"""(clock, serial of joining, request)."""


class SteadyBatch:
    """Sums over the members, on two clocks: steps ``scheduled`` and steps ``completed``.

    ``steps_ahead``: with asynchronous scheduling a request that stops by itself is noticed after one more step was
    scheduled with it.
    """

    def __init__(self, block_tokens: int, windows: tuple[int, ...], *, steps_ahead: int) -> None:
        self.scheduled = 0
        self.completed = 0
        self.count = 0
        """Members of the next step."""
        self.streaming = 0
        """Requests that every completed step gives a token: they joined in one and have not ended."""
        self.blocks_due = [0] * block_tokens
        """Members that take a KV block in the steps whose number leaves this remainder."""
        self.block_tokens = block_tokens
        self.highest_rank = -1
        """No member was admitted later than this."""
        self._offset = 0
        """What members attend to, less the step's number for each."""
        self._steps_ahead = steps_ahead
        self._serial = 0
        self._leaving: list[Due] = []
        self._ending: list[Due] = []
        self._windows = [_Window(window) for window in windows]

    def context_tokens(self, step: int) -> int:
        """What the members attend to in a step, their new tokens included."""
        return self._offset + self.count * step

    def window_tokens(self, step: int) -> tuple[int, ...]:
        """The same within each window."""
        return tuple([window.tokens(step) for window in self._windows])

    def join(self, request: Request) -> None:
        """A request was scheduled up to its last known token: from now on it gets one a step.

        ``request.computed_tokens`` is what it has computed with the step just scheduled.
        """
        step = self.scheduled
        self._serial = serial = self._serial + 1
        tokens = request.computed_tokens
        ends = step + request.final_tokens - 1 - tokens
        leaves = min(step + request.most_computed_tokens - tokens, ends + self._steps_ahead)
        request.joined_at = step
        request.leaves_at = leaves
        request.ends_at = ends
        request.serial = serial
        heapq.heappush(self._ending, (ends, serial, request))
        if request.rank > self.highest_rank:
            self.highest_rank = request.rank
        if leaves > step:
            self._add(request)
            heapq.heappush(self._leaving, (leaves, serial, request))

    def _add(self, request: Request) -> None:
        offset = request.computed_tokens - request.joined_at
        request.counted = True
        self.count += 1
        self._offset += offset
        self.blocks_due[(1 - offset) % self.block_tokens] += 1
        for window in self._windows:
            window.add(request, offset, self.scheduled)

    def _take_out(self, request: Request) -> None:
        offset = request.computed_tokens - request.joined_at
        request.counted = False
        self.count -= 1
        self._offset -= offset
        self.blocks_due[(1 - offset) % self.block_tokens] -= 1
        for window in self._windows:
            window.take_out(offset)

    def drop(self, step: int) -> None:
        """Members that may get nothing in this step leave the sums."""
        leaving = self._leaving
        while leaving and leaving[0][0] < step:
            _, serial, request = heapq.heappop(leaving)
            if request.serial == serial:
                self._take_out(request)

    def ended(self) -> list[Request]:
        """Take out what got its last token in the step just completed."""
        ending, clock = self._ending, self.completed
        if not ending or ending[0][0] > clock:
            return []
        ended: list[Request] = []
        while ending and ending[0][0] <= clock:
            _, serial, request = heapq.heappop(ending)
            if request.serial == serial:
                self.settle(request)
                ended.append(request)
        return ended

    def known_tokens(self, request: Request, completed: int) -> int:
        """What is known of a member when so many steps are completed, that which it joined in among them."""
        return request.computed_tokens + 1 + min(completed, request.ends_at) - request.joined_at

    def clear(self) -> None:
        """Everyone was settled."""
        self._leaving.clear()
        self._ending.clear()
        self.highest_rank = -1
        for window in self._windows:
            window.clear()

    def last_unchanged(self) -> int:
        """The last step to schedule before a member leaves."""
        leaving = self._leaving
        while leaving and leaving[0][2].serial != leaving[0][1]:
            heapq.heappop(leaving)
        return leaving[0][0] if leaving else NEVER

    def next_end(self) -> int:
        """The first step whose completion ends a member."""
        ending = self._ending
        while ending and ending[0][2].serial != ending[0][1]:
            heapq.heappop(ending)
        return ending[0][0] if ending else NEVER

    def settle(self, request: Request) -> None:
        """Take a member out, and write down the tokens it has."""
        joined, tokens, completed = request.joined_at, request.computed_tokens, self.completed
        known = self.known_tokens(request, completed)
        if request.counted:
            self._take_out(request)
        if completed >= joined:
            self.streaming -= 1
        request.computed_tokens = computed = tokens + min(self.scheduled, request.leaves_at) - joined
        if known > request.known_tokens:
            request.known_tokens = known
        request.placeholders = computed + 1 - request.known_tokens
        request.serial = 0


class _Window:
    """The members' tokens within a sliding window: those whose context has outgrown it attend to the window alone."""

    def __init__(self, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self._outgrown = 0
        self._growing = 0
        self._growing_offset = 0
        self._step = 0
        self._outgrowing: list[Due] = []

    def add(self, request: Request, offset: int, step: int) -> None:
        self._move(step)
        outgrows = self._window_tokens - offset + 1
        if outgrows <= step:
            self._outgrown += 1
            return
        self._growing += 1
        self._growing_offset += offset
        heapq.heappush(self._outgrowing, (outgrows, request.serial, request))

    def take_out(self, offset: int) -> None:
        if self._window_tokens - offset + 1 <= self._step:
            self._outgrown -= 1
        else:
            self._growing -= 1
            self._growing_offset -= offset

    def tokens(self, step: int) -> int:
        self._move(step)
        return self._growing_offset + self._growing * step + self._outgrown * self._window_tokens

    def _move(self, step: int) -> None:
        """Up to this step, who outgrows the window?"""
        self._step = step
        outgrowing = self._outgrowing
        while outgrowing and outgrowing[0][0] <= step:
            _, serial, request = heapq.heappop(outgrowing)
            if request.serial == serial and request.counted:
                offset = request.computed_tokens - request.joined_at
                self._growing -= 1
                self._growing_offset -= offset
                self._outgrown += 1

    def clear(self) -> None:
        self._outgrowing.clear()
