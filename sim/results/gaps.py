"""Inter-token gaps without a list of tokens: requests that emit in consecutive steps share one weighted gap."""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np


class GapLog:
    """All gaps between emissions, pooled, as (gap, weight); and the largest shared gap since any step.

    A gap is the end of this emission minus the end of the request's previous one; an emission is one chunk, whatever
    tokens speculation puts into it.
    """

    __slots__ = ("_peak_gaps_s", "_peak_steps", "end_s", "gap_s", "weight")

    def __init__(self) -> None:
        self.end_s = array("d")
        self.gap_s = array("d")
        self.weight = array("q")
        self._peak_steps: list[int] = []
        self._peak_gaps_s: list[float] = []

    def single(self, end_s: float, gap_s: float) -> None:
        """One request's gap that no other shares."""
        self.end_s.append(end_s)
        self.gap_s.append(gap_s)
        self.weight.append(1)

    def shared(self, step: int, end_s: float, gap_s: float, requests: int) -> None:
        """The gap of all ``requests`` that emitted in ``step`` and in the step before."""
        self.end_s.append(end_s)
        self.gap_s.append(gap_s)
        self.weight.append(requests)
        # Decreasing stack: an older, smaller gap can never again be the largest since any step.
        while self._peak_gaps_s and self._peak_gaps_s[-1] <= gap_s:
            self._peak_gaps_s.pop()
            self._peak_steps.pop()
        self._peak_gaps_s.append(gap_s)
        self._peak_steps.append(step)

    def largest_after(self, step: int) -> float:
        """The largest shared gap of the steps after ``step``; 0 if there was none."""
        index = bisect_right(self._peak_steps, step)
        return self._peak_gaps_s[index] if index < len(self._peak_gaps_s) else 0.0

    def pooled(self, from_s: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Gaps that ended at ``from_s`` or later, in seconds, and how many tokens each stands for."""
        kept = np.array(self.end_s) >= from_s
        return np.array(self.gap_s)[kept], np.array(self.weight)[kept]
