"""What the reading of a trace left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sim.errors import Problem, TraceError

BAD_LINE = "bad line"
_SHOWN = 5


class Unanswered(Exception):
    """A request that got no answer; its argument says how the trace tells."""


class Skips:
    """Counts of the latest reading. ``lenient``: a bad line is one more reason; else it is a TraceError."""

    def __init__(self, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.counts: Counter[str] = Counter()
        self.first: list[str] = []

    def begin(self) -> None:
        """A reading begins."""
        self.counts.clear()
        self.first.clear()

    def bad(self, problem: Problem) -> None:
        """A line cannot be read. Raises TraceError unless lenient."""
        if not self.lenient:
            raise TraceError(problem)
        self.counts[BAD_LINE] += 1
        if len(self.first) < _SHOWN:
            self.first.append(str(problem).partition("\n")[0])

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Something readable that is no request."""
        self.counts[reason] += count


def skipped(each: Iterable[Skips]) -> dict[str, Any] | None:
    """For the run's summary: lines by reason, and the first bad ones; None where nothing was left out."""
    counts: Counter[str] = Counter()
    first: list[str] = []
    for skips in each:
        counts.update(skips.counts)
        first += skips.first
    return {"skipped": dict(counts), "first_bad": first[:_SHOWN]} if counts else None
