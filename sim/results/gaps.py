"""Inter-token gaps without a list of tokens: requests that emit in consecutive steps share one, in the step table."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class GapLog:
    """Gaps that no two requests share, and the largest shared gap since any step.

    A gap is the end of this emission minus the end of the request's previous one; an emission is one chunk, whatever
    tokens speculation puts into it.
    """

    __slots__ = ("_peak_gaps_s", "_peak_steps", "end_s", "gap_s")

    def __init__(self) -> None:
        self.end_s = array("d")
        self.gap_s = array("d")
        self._peak_steps: list[int] = []
        self._peak_gaps_s: list[float] = []

    def single(self, end_s: float, gap_s: float) -> None:
        """One request's gap: it did not emit in the step before."""
        self.end_s.append(end_s)
        self.gap_s.append(gap_s)

    def shared(self, step: int, gap_s: float) -> None:
        """The gap of all requests that emitted in ``step`` and in the step before.

        Of a run of steps in which the same requests emit, the largest gap may be noted alone, for the last one.
        """
        # Decreasing stack: an older, smaller gap can never again be the largest since any step.
        gaps_s, steps = self._peak_gaps_s, self._peak_steps
        while gaps_s and gaps_s[-1] <= gap_s:
            gaps_s.pop()
            steps.pop()
        gaps_s.append(gap_s)
        steps.append(step)

    def largest_after(self, step: int) -> float:
        """The largest shared gap of the steps after ``step``; 0 if there was none."""
        index = bisect_right(self._peak_steps, step)
        return self._peak_gaps_s[index] if index < len(self._peak_gaps_s) else 0.0
