"""Runs the plan on a device within a budget, and says what it left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from calibrate.bench import Budget, Call, Timer, measure
from calibrate.drift import Reference, steady
from calibrate.kernels import Kernel, Sample
from calibrate.probing import REFUSALS
from calibrate.workbench import TooLargeError

CALLS_PER_KERNEL = 6
"""Warm-up, sizing and the fewest repeats: what a kernel costs at the least."""
ENOUGH = 10
"""Samples that every curve gets, though the time be spent: the last in the plan must not go without. They are its
smallest kernels, whose time is overhead and foretells little.
"""
PATIENCE = 3.0
"""A kernel may take this many shares of the time left; what it takes more, others lose."""

Progress = Callable[[Kernel, int], None]


class Bench(Protocol):
    """Makes kernels ready to run."""

    def call(self, kernel: Kernel) -> Call:
        """The kernel on its operands. Raises TooLargeError."""


@dataclass(slots=True)
class Session:
    """Samples, and reasons with how many kernels each left out."""

    samples: list[Sample] = field(default_factory=list)
    skipped: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By family, dtype and reason."""

    references_s: list[tuple[float, float]] = field(default_factory=list)
    """Of each sample, the reference's time before and after it; empty where none was taken."""

    @property
    def usual_reference_s(self) -> float:
        """The reference's median time; 0 without one."""
        return float(np.median(self.references_s)) if self.references_s else 0.0

    @property
    def drift(self) -> float:
        """How far the reference's times spread: p90 over p10, less 1."""
        if not self.references_s:
            return 0.0
        low, high = np.percentile(self.references_s, (10, 90))
        return float(high / low - 1)

    def take_out_drift(self) -> None:
        """Every sample as it would have been at the usual speed."""
        usual_s = self.usual_reference_s
        for index, (before_s, after_s) in enumerate(self.references_s):
            sample = self.samples[index]
            self.samples[index] = replace(sample, seconds=steady(sample.seconds, before_s, after_s, usual_s))

    def skip(self, kernel: Kernel, reason: str) -> None:
        """Note one kernel left out."""
        self.skipped[kernel.family, kernel.dtype, reason] += 1

    def skip_lines(self) -> list[str]:
        """What was left out and why, one line a reason."""
        return [
            f"{count} {family} {dtype} kernel{'s' if count > 1 else ''}: {reason}"
            for (family, dtype, reason), count in self.skipped.items()
        ]


def run_plan(
    bench: Bench,
    timer: Timer,
    plan: Sequence[Kernel],
    budget: Budget,
    progress: Progress,
    reference: Reference | None = None,
) -> Session:
    """Measure every kernel that fits into memory and time; with a ``reference``, at the device's usual speed."""
    session = Session()
    for position, kernel in enumerate(plan):
        progress(kernel, position)
        share_s = budget.next_share_s()
        alike = [sample for sample in session.samples if sample.kernel.curve == kernel.curve]
        reason = _too_late(kernel, alike, share_s, budget) if len(alike) >= ENOUGH else None
        if reason:
            session.skip(kernel, reason)
            continue
        before_s = reference.seconds() if reference else 0.0
        try:
            measured = measure(timer, bench.call(kernel), share_s)
        except TooLargeError:
            session.skip(kernel, "operands larger than the memory set aside (at most a quarter of what is free)")
        except REFUSALS as error:
            session.skip(
                kernel, f"torch cannot run it here ({(str(error).splitlines() or ['no reason given'])[0][:100]})"
            )
        else:
            session.samples.append(Sample(kernel, measured.seconds, measured.spread, measured.repeats))
            if reference:
                session.references_s.append((before_s, reference.seconds()))
    session.take_out_drift()
    return session


def _too_late(kernel: Kernel, alike: Sequence[Sample], share_s: float, budget: Budget) -> str | None:
    """The reason to leave a kernel out: no time, or at the best rates of its kind it takes far more than its share."""
    if budget.exhausted:
        return "the time is spent"
    expected_s = kernel.traffic_bytes / max(sample.kernel.traffic_bytes / sample.seconds for sample in alike)
    if kernel.flops:
        expected_s = max(expected_s, kernel.flops / max(sample.kernel.flops / sample.seconds for sample in alike))
    return "too long for the time there is" if expected_s * CALLS_PER_KERNEL > share_s * PATIENCE else None
