"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Target(Protocol):
    """What a router may know of a replica."""

    @property
    def outstanding(self) -> int: ...


class Router(Protocol):
    """Picks the index of a replica for the next request; ``looks`` if it wants to know how they stand."""

    looks: bool

    def pick(self, replicas: Sequence[Target]) -> int: ...


class RoundRobin:
    """Each replica in turn."""

    looks = False

    def __init__(self) -> None:
        self._next = 0

    def pick(self, replicas: Sequence[Target]) -> int:
        index = self._next
        self._next = (index + 1) % len(replicas)
        return index


class Random:
    """Any replica, with equal chances."""

    looks = False

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def pick(self, replicas: Sequence[Target]) -> int:
        return int(self._generator.integers(len(replicas)))


class LeastOutstanding:
    """The replica with the fewest unfinished requests; ties go to the lowest index."""

    looks = True

    def pick(self, replicas: Sequence[Target]) -> int:
        return min(range(len(replicas)), key=lambda index: replicas[index].outstanding)


class PowerOfTwo:
    """The less loaded of two drawn at random (Mitzenmacher 2001)."""

    looks = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def pick(self, replicas: Sequence[Target]) -> int:
        if len(replicas) == 1:
            return 0
        first, second = (int(index) for index in self._generator.choice(len(replicas), size=2, replace=False))
        return min(first, second, key=lambda index: (replicas[index].outstanding, index))


def build_router(name: str, generator: np.random.Generator) -> Router:
    """The router a scenario names."""
    if name == "random":
        return Random(generator)
    if name == "least-outstanding":
        return LeastOutstanding()
    if name == "power-of-two":
        return PowerOfTwo(generator)
    return RoundRobin()
