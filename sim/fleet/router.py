"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sim.engine.request import Request


class Target(Protocol):
    """What a router may know of a replica."""

    @property
    def outstanding(self) -> int: ...

    def cached_tokens(self, request: Request) -> int:
        """Of its prompt, in the replica's prefix cache."""
        ...


class Router(Protocol):
    """Picks the index of a replica for the next request; ``looks`` if it wants to know how they stand."""

    looks: bool

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:
        """``session_id``: None where a request is a session of its own."""
        ...


class RoundRobin:
    """Each replica in turn."""

    looks = False

    def __init__(self) -> None:
        self._next = 0

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:  # noqa: ARG002
        index = self._next
        self._next = (index + 1) % len(replicas)
        return index


class Random:
    """Any replica, with equal chances."""

    looks = False

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:  # noqa: ARG002
        return int(self._generator.integers(len(replicas)))


class LeastOutstanding:
    """The replica with the fewest unfinished requests; ties go to the lowest index."""

    looks = True

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:  # noqa: ARG002
        return min(range(len(replicas)), key=lambda index: replicas[index].outstanding)


class PowerOfTwo:
    """The less loaded of two drawn at random (Mitzenmacher 2001)."""

    looks = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:  # noqa: ARG002
        if len(replicas) == 1:
            return 0
        first, second = (int(index) for index in self._generator.choice(len(replicas), size=2, replace=False))
        return min(first, second, key=lambda index: (replicas[index].outstanding, index))


class Sticky:
    """A session's first request goes to the replica with the fewest unfinished requests; the others follow it."""

    looks = True

    def __init__(self) -> None:
        self._least = LeastOutstanding()
        self._homes: dict[int, int] = {}

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:
        if session_id is None:
            return self._least.pick(replicas, request, session_id)
        home = self._homes.get(session_id)
        if home is None:
            home = self._homes[session_id] = self._least.pick(replicas, request, session_id)
        return home


class LongestPrefix:
    """The replica that has cached most of the prompt; ties go to the fewest unfinished requests, then the lowest index.

    It knows the caches as they are, as routers do that listen to the engines' cache events.
    """

    looks = True

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:  # noqa: ARG002
        def rank(index: int) -> tuple[int, int]:
            return -replicas[index].cached_tokens(request), replicas[index].outstanding

        return min(range(len(replicas)), key=rank)


class Weighted:
    """Each replica in turn, as often as its weight says, spread evenly (nginx's smooth weighted round robin)."""

    looks = False

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights
        self._total = sum(weights)
        self._credit = [0.0] * len(weights)

    def pick(self, replicas: Sequence[Target], request: Request, session_id: int | None) -> int:  # noqa: ARG002
        self._credit = [credit + weight for credit, weight in zip(self._credit, self._weights, strict=True)]
        index = max(range(len(self._credit)), key=self._credit.__getitem__)
        self._credit[index] -= self._total
        return index


def build_router(name: str, generator: np.random.Generator, weights: Sequence[float] | None = None) -> Router:
    """The router a scenario names."""
    if name == "weighted":
        assert weights is not None, "the weighted router has weights"
        return Weighted(weights)
    if name == "session":
        return Sticky()
    if name == "prefix":
        return LongestPrefix()
    if name == "random":
        return Random(generator)
    if name == "least-outstanding":
        return LeastOutstanding()
    if name == "power-of-two":
        return PowerOfTwo(generator)
    return RoundRobin()
