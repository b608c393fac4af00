"""The waiting queue of each policy."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

from sim.engine.request import Request

ARRIVAL = attrgetter("order")


class WaitingQueue(Protocol):
    """Requests not running, next first."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def add(self, request: Request) -> None:
        """A new request."""
        ...

    def put_back(self, request: Request) -> None:
        """A preempted request, or one set aside."""
        ...

    def head(self) -> Request: ...

    def take(self) -> Request:
        """Remove and return the head."""
        ...

    def remove(self, request: Request) -> None: ...


class FcfsQueue(deque[Request]):
    """First come, first served; what is put back goes to the front."""

    add = deque.append
    put_back = deque.appendleft
    take = deque.popleft

    def head(self) -> Request:
        return self[0]


class ArrivalQueue(FcfsQueue):
    """First come, first served; what is put back takes the place of its arrival."""

    def put_back(self, request: Request) -> None:
        insort(self, request, key=ARRIVAL)


class PriorityQueue:
    """By (priority, order of arrival); lower first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Request]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, _, request in sorted(self._heap, key=lambda entry: entry[:2]))

    def add(self, request: Request) -> None:
        heapq.heappush(self._heap, (request.priority, request.order, request))

    put_back = add

    def head(self) -> Request:
        return self._heap[0][2]

    def take(self) -> Request:
        return heapq.heappop(self._heap)[2]

    def remove(self, request: Request) -> None:
        self._heap = [entry for entry in self._heap if entry[2] is not request]
        heapq.heapify(self._heap)
