"""How important requests are: priority values drawn by their weights."""

from __future__ import annotations

import numpy as np

from sim.scenario import specs
from sim.traffic.streams import generator


class Priorities:
    """Draws priority values by their weights; 0 where the scenario says nothing of them."""

    def __init__(self, spec: specs.TrafficSpec, seed: int) -> None:
        weights = sorted((spec.priorities or {0: 1.0}).items())
        self._values = np.array([value for value, _ in weights], dtype=np.int64)
        shares = np.array([weight for _, weight in weights])
        self._bounds = np.cumsum(shares / shares.max())
        self._generator = generator(seed, "priority")

    def take(self, count: int) -> list[int]:
        """The next ``count``."""
        drawn = self._generator.random(count) * self._bounds[-1]
        priorities: list[int] = self._values[np.searchsorted(self._bounds[:-1], drawn, side="right")].tolist()
        return priorities
