"""What is known of a load: sums, and quantiles from counts of values rounded to 11 bits (0.05 %; whole numbers up to
2,048 are exact), so that memory stays bounded however many requests there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sim.results.metrics import as_json

SCALES_S = (1.0, 10.0, 60.0, 600.0)
"""Windows in which arrivals are counted."""
QUANTILES = (50, 90, 99)
MOST_BINS = 1024
_LEAST_WIDTH_S = 2.0**-10
_DROPPED_BITS = 52 - 10


class Seen(NamedTuple):
    """One request as described: when it is sent (None: an earlier answer decides), its lengths, and what it repeats."""

    time_s: float | None
    prompt_tokens: int
    output_tokens: int
    class_index: int
    reused_tokens: int


class Values:
    """Moments and quantiles of non-negative numbers, by counts of rounded ones."""

    def __init__(self) -> None:
        self.count, self.total, self.squares, self.largest = 0, 0.0, 0.0, 0.0
        self.counts: Counter[float] = Counter()

    def add(self, values: np.ndarray) -> None:
        """Take more of them."""
        if not len(values):
            return
        values = values.astype(np.float64)
        self.count += len(values)
        self.total += float(values.sum())
        self.squares += float(np.square(values).sum())
        self.largest = max(self.largest, float(values.max()))
        half = 1 << (_DROPPED_BITS - 1)
        rounded = ((values.view(np.int64) + half) >> _DROPPED_BITS << _DROPPED_BITS).view(np.float64)
        for value, count in zip(*(each.tolist() for each in np.unique(rounded, return_counts=True)), strict=True):
            self.counts[value] += count

    @property
    def mean(self) -> float:
        """NaN without values."""
        return self.total / self.count if self.count else math.nan

    @property
    def cv(self) -> float:
        """Standard deviation / mean."""
        if not self.total:
            return math.nan
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2)) / self.mean

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Ascending values, and the share of all that are at most as large."""
        values = np.array(sorted(self.counts))
        return values, np.cumsum([self.counts[value] for value in values]) / max(1, self.count)

    def figures(self) -> dict[str, float]:
        """Mean, quantiles (nearest rank) and maximum; none without values."""
        if not self.count:
            return {}
        values, shares = self.curve()
        at = np.minimum(np.searchsorted(shares, np.array(QUANTILES) / 100 - 1e-12), len(values) - 1)
        quantiles = {f"p{q}": float(value) for q, value in zip(QUANTILES, values[at], strict=True)}
        return {"mean": self.mean, **quantiles, "max": self.largest}


class Windows:
    """Arrivals per window of ``scale_s``, of the windows that ended before the last arrival."""

    def __init__(self, scale_s: float) -> None:
        self.scale_s = scale_s
        self._total = self._squares = self._most = 0
        self._open, self._in_open = 0, 0

    def add(self, times_s: np.ndarray) -> None:
        """Take more, which ascend."""
        for window, count in zip(
            *(each.tolist() for each in np.unique(times_s // self.scale_s, return_counts=True)), strict=True
        ):
            if window != self._open:
                self._close()
                self._open, self._in_open = int(window), 0
            self._in_open += count

    def _close(self) -> None:
        self._total += self._in_open
        self._squares += self._in_open**2
        self._most = max(self._most, self._in_open)

    def figures(self) -> dict[str, float] | None:
        """Variance / mean of the counts (1: Poisson), and the fullest window over the mean; None below two windows."""
        windows = self._open
        if windows < 2 or not self._total:
            return None
        mean = self._total / windows
        dispersion = (self._squares / windows - mean**2) / mean
        return {"window_s": self.scale_s, "dispersion": dispersion, "peak_to_mean": self._most / mean}


class Rates:
    """Arrivals over time in at most ``MOST_BINS`` bins, whose width doubles as the load goes on."""

    def __init__(self) -> None:
        self.width_s = _LEAST_WIDTH_S
        self.counts = np.zeros(MOST_BINS, dtype=np.int64)

    def add(self, times_s: np.ndarray) -> None:
        """Take more, which ascend."""
        while times_s[-1] >= self.width_s * MOST_BINS:
            self.counts = np.concatenate((self.counts.reshape(-1, 2).sum(axis=1), np.zeros(MOST_BINS // 2, np.int64)))
            self.width_s *= 2
        self.counts += np.bincount((times_s / self.width_s).astype(np.int64), minlength=MOST_BINS)

    def binned(self, span_s: float, most: int = 128) -> tuple[float, np.ndarray]:
        """Width of a bin, and requests per second in each bin up to the span."""
        fold = 1
        while span_s / (self.width_s * fold) > most:
            fold *= 2
        width_s = self.width_s * fold
        rates = self.counts.reshape(-1, fold).sum(axis=1) / width_s
        return width_s, rates[: int(span_s / width_s) + 1]


class Description:
    """What is known of one load, or of one class of it."""

    def __init__(self) -> None:
        self.requests = 0
        self.first_s = self.last_s = math.nan
        self.gaps, self.prompt, self.output = Values(), Values(), Values()
        self.rates, self.windows = Rates(), [Windows(scale_s) for scale_s in SCALES_S]
        self.reused_tokens = self.with_reuse = 0
        self._products = 0.0

    def add(self, seen: Iterable[Seen]) -> None:
        """Take more requests, in order of time."""
        rows = list(seen)
        if not rows:
            return
        self.requests += len(rows)
        prompt, output = (np.array([row[column] for row in rows], dtype=np.float64) for column in (1, 2))
        self.prompt.add(prompt)
        self.output.add(output)
        self._products += float(prompt @ output)
        self.reused_tokens += sum(row.reused_tokens for row in rows)
        self.with_reuse += sum(row.reused_tokens > 0 for row in rows)
        times_s = np.array([row.time_s for row in rows if row.time_s is not None])
        if len(times_s):
            self._add_times(times_s)

    def _add_times(self, times_s: np.ndarray) -> None:
        if math.isnan(self.first_s):
            self.first_s = float(times_s[0])
            self.gaps.add(np.diff(times_s))
        else:
            self.gaps.add(np.diff(times_s, prepend=self.last_s))
        self.last_s = float(times_s[-1])
        self.rates.add(times_s)
        for windows in self.windows:
            windows.add(times_s)

    @property
    def correlation(self) -> float:
        """Of prompt and output lengths; NaN where one does not vary."""
        prompt, output = self.prompt, self.output
        spread = prompt.cv * prompt.mean * output.cv * output.mean
        return (self._products / self.requests - prompt.mean * output.mean) / spread if spread > 0 else math.nan

    def summary(self, *, timed: bool) -> dict[str, Any]:
        """``timed``: arrivals have times of their own; else rate and burstiness are None."""
        span_s = self.last_s - self.first_s
        some = timed and span_s > 0
        width_s, rates = self.rates.binned(self.last_s) if some else (None, np.array([]))
        return {
            "requests": self.requests,
            "span_s": span_s if some else None,
            "rate_per_s": self.gaps.count / span_s if some else None,
            "gap_s": self.gaps.figures() if some else None,
            "gap_cv": self.gaps.cv if some else None,
            "windows": [figures for each in self.windows if (figures := each.figures())] if some else [],
            "rate_over_time": {"width_s": width_s, "per_s": rates.tolist()} if some else None,
            "prompt_tokens": self.prompt.figures(),
            "output_tokens": self.output.figures(),
            "length_correlation": self.correlation if self.requests else None,
            "prefix_reuse": {
                "token_share": self.reused_tokens / self.prompt.total if self.prompt.total else None,
                "request_share": self.with_reuse / self.requests if self.requests else None,
            },
        }


class Load(NamedTuple):
    """A load described: all of it, its classes by name, and its sessions' turns."""

    everything: Description
    classes: dict[str, Description]
    turns: Values
    timed: bool
    """Requests have times of their own: neither a closed loop nor a burst."""
    clients: int | None
    """Of a closed loop."""
    trace: dict[str, Any] | None = None
    """What was left out of it; None: nothing."""

    def summary(self) -> dict[str, Any]:
        """The object of ``sim traffic --json``."""
        sessions = {"count": self.turns.count, "turns": self.turns.figures()} if self.turns.count else None
        plain: dict[str, Any] = as_json(
            {
                **self.everything.summary(timed=self.timed),
                "clients": self.clients,
                "trace": self.trace,
                "sessions": sessions,
                "classes": {name: each.summary(timed=self.timed) for name, each in self.classes.items()} or None,
            }
        )
        return plain
