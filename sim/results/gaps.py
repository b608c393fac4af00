"""Inter-token gaps without a list of tokens: requests that emit in consecutive steps share one, in the step table."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class GapLog:
    """Gaps that no two requests share, and the largest shared gap since any step.

    A gap is the end of this emission minus the end of the request's previous one; an emission is one chunk, whatever
    tokens speculation puts into it.
    """

    __slots__ = ("_peak_gaps_s", "_peak_steps", "end_s", "gap_s", "peak_s")

    def __init__(self) -> None:
        self.end_s = array("d")
        self.gap_s = array("d")
        self.peak_s = 0.0
        """The largest shared gap since the last mark; raised by whoever sees a larger one."""
        self._peak_steps: list[int] = []
        self._peak_gaps_s: list[float] = []

    def single(self, end_s: float, gap_s: float) -> None:
        """One request's gap: it did not emit in the step before."""
        self.end_s.append(end_s)
        self.gap_s.append(gap_s)

    def mark(self, step: int) -> None:
        """From the steps after this one on somebody may ask for the largest gap."""
        # Decreasing stack: an older, smaller gap can never again be the largest since any step.
        gaps_s, steps, peak_s = self._peak_gaps_s, self._peak_steps, self.peak_s
        while gaps_s and gaps_s[-1] <= peak_s:
            gaps_s.pop()
            steps.pop()
        gaps_s.append(peak_s)
        steps.append(step)
        self.peak_s = 0.0

    def largest_after(self, step: int) -> float:
        """The largest shared gap of the steps after a marked one; 0 if there was none."""
        index = bisect_right(self._peak_steps, step)
        older_s = self._peak_gaps_s[index] if index < len(self._peak_gaps_s) else 0.0
        return max(self.peak_s, older_s)
