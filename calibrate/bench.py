"""The timing core: what a timer is, warm-up, medians with their spread, and a budget of wall time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np

Call = Callable[[int], object]
"""One launch of a kernel; the number turns over its operands, so that weights are not found in cache."""
Clock = Callable[[], float]

LEAST_BATCH_S = 2e-3
"""Calls are timed in batches at least this long: well above any timer's resolution."""
MOST_CALLS = 1000
LEAST_REPEATS = 3
MOST_REPEATS = 25
TICK_S = 1e-7


class Timer(Protocol):
    """Times consecutive calls by the device's own clock, or the host's with the device synchronised."""

    def prepare(self, call: Call, calls: int) -> Callable[[], float]:
        """A batch of ``calls``; each run of it returns the seconds of the whole batch."""


class HostTimer:
    """The host's clock around a batch, with nothing of the device left running at either end."""

    def __init__(self, synchronise: Callable[[], None], clock: Clock = time.perf_counter) -> None:
        self._synchronise = synchronise
        self._clock = clock
        self._turn = count()

    def prepare(self, call: Call, calls: int) -> Callable[[], float]:
        """A batch, synchronised before and after."""

        def batch() -> float:
            self._synchronise()
            start_s = self._clock()
            for _ in range(calls):
                call(next(self._turn))
            self._synchronise()
            return self._clock() - start_s

        return batch


@dataclass(frozen=True, slots=True)
class Measurement:
    """Median seconds of one call."""

    seconds: float
    spread: float
    """Interquartile range over the median."""
    repeats: int
    calls: int
    """Calls in each repeat."""


def measure(timer: Timer, call: Call, allowance_s: float, clock: Clock = time.perf_counter) -> Measurement:
    """Warm up, choose a batch the timer can resolve, and repeat it until the allowance is spent."""
    end_s = clock() + allowance_s
    batch = timer.prepare(call, 1)
    batch()
    once_s = batch()
    calls = min(MOST_CALLS, math.ceil(LEAST_BATCH_S / max(once_s, TICK_S)))
    if calls > 1:
        batch = timer.prepare(call, calls)
        batch()
    times_s: list[float] = []
    while len(times_s) < LEAST_REPEATS or (len(times_s) < MOST_REPEATS and clock() < end_s):
        times_s.append(batch() / calls)
    low, median, high = np.percentile(times_s, [25, 50, 75])
    return Measurement(float(median), float((high - low) / median), len(times_s), calls)


class Budget:
    """Wall time shared by kernels that are still to come; what one leaves, the others get."""

    LEAST_SHARE_S = 0.02

    def __init__(self, total_s: float, kernels: int, clock: Clock = time.perf_counter) -> None:
        self.total_s = total_s
        self._left = kernels
        self._clock = clock
        self._start_s = clock()

    @property
    def spent_s(self) -> float:
        """Since the budget was opened."""
        return self._clock() - self._start_s

    @property
    def exhausted(self) -> bool:
        """Whether all of it is spent."""
        return self.spent_s > self.total_s

    def next_share_s(self) -> float:
        """Seconds the next kernel may take; never nothing, for a curve may still want its first samples."""
        share_s = max(0.0, self.total_s - self.spent_s) / max(1, self._left)
        self._left -= 1
        return max(share_s, self.LEAST_SHARE_S)
