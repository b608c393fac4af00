"""Distributions, the measured window, attainment and goodput; each defined at its home.

Definitions are those of ``vllm bench serve`` (0.33): TTFT from the client's send; TPOT = (E2E - TTFT) / (N - 1),
undefined for N = 1; ITL = all gaps between a request's chunks, pooled over requests; percentiles interpolate linearly.
A step's tokens for a request arrive as one chunk: with speculation several tokens share one gap, and mean ITL exceeds
TPOT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sim.results.requests import COMPLETED

PERCENTILES = (50, 90, 95, 99)
FIGURES = ("mean", *(f"p{percentile}" for percentile in PERCENTILES), "max")
Distribution = dict[str, float | None]
"""``FIGURES`` by name."""
Weighted = tuple[np.ndarray, np.ndarray]
"""Values (float64), and how often each of them occurs (whole numbers)."""

MANTISSA_BITS = 12
"""A bin of ``weighted_distribution`` is a 4,096th of a power of two: 0.02 % wide."""
LEAST_BINNED, BINNED_OCTAVES = 2.0**-20, 32
"""From a microsecond to an hour; what lies below and above falls into the first and the last bin."""
BINS = BINNED_OCTAVES << MANTISSA_BITS
_SHIFT = 52 - MANTISSA_BITS
_FIRST_BIN = int(np.float64(LEAST_BINNED).view(np.int64)) >> _SHIFT


def distribution(values: np.ndarray) -> Distribution:
    """Mean, percentiles and maximum of the values that exist; None for each when there are none."""
    values = values[~np.isnan(values)]
    if not len(values):
        return dict.fromkeys(FIGURES)
    figures = (values.mean(), *np.percentile(values, PERCENTILES), values.max())
    return {name: float(figure) for name, figure in zip(FIGURES, figures, strict=True)}


def weighted_distribution(pieces: Callable[[], Iterable[Weighted]]) -> Distribution:
    """``distribution`` of every value repeated ``weight`` times, without repeating it.

    The pieces are read twice, and may be many: the first time values are counted by bins, the second time those bins
    alone are kept and sorted in which a percentile lies.
    """
    counts, total, largest = np.zeros(BINS, dtype=np.int64), 0.0, -np.inf
    for values, weights in pieces():
        counts += np.bincount(_bins(values), weights, BINS).astype(np.int64)
        total += float(np.dot(values, weights))
        largest = max(largest, float(values.max(initial=-np.inf)))
    count = int(counts.sum())
    if not count:
        return distribution(np.array([]))
    ranks = (count - 1) * np.array(PERCENTILES) / 100
    below, above = np.floor(ranks), np.ceil(ranks)
    wanted = np.zeros(BINS, dtype=bool)
    wanted[np.searchsorted(np.cumsum(counts), [below, above], side="right")] = True
    values, weights = _of_bins(wanted, pieces())
    left_out = np.cumsum(np.where(wanted, 0, counts))
    ends = np.cumsum(weights) + left_out[_bins(values)]
    low, high = (values[np.searchsorted(ends, rank, side="right")] for rank in (below, above))
    figures = (total / count, *(low + (high - low) * (ranks - below)), largest)
    return {name: float(figure) for name, figure in zip(FIGURES, figures, strict=True)}


def _bins(values: np.ndarray) -> np.ndarray:
    """Bins in the order of the values: sign, exponent and first bits of the mantissa order floats from 0 upwards."""
    bins: np.ndarray = np.clip((values.view(np.int64) >> _SHIFT) - _FIRST_BIN, 0, BINS - 1)
    return bins


def _of_bins(wanted: np.ndarray, pieces: Iterable[Weighted]) -> Weighted:
    """What lies in these bins, in the order of the values."""
    kept = []
    for values, weights in pieces:
        inside = wanted[_bins(values)]
        kept.append((values[inside], weights[inside]))
    values, weights = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    order = np.argsort(values)
    return values[order], weights[order]


def meets(columns: Mapping[str, np.ndarray], slo: Mapping[str, float | None]) -> np.ndarray:
    """Whether each request completed within the SLO. A one-token answer is judged by TTFT (and E2E) alone."""
    good: np.ndarray = columns["status"] == COMPLETED
    for name in ("ttft_s", "e2e_s"):
        limit_s = slo.get(name)
        if limit_s is not None:
            good &= np.nan_to_num(columns[name], nan=np.inf) <= limit_s
    tpot_limit_s = slo.get("tpot_s")
    if tpot_limit_s is not None:
        good &= np.nan_to_num(columns["tpot_s"], nan=0.0) <= tpot_limit_s
    return good


def attainment(columns: Mapping[str, np.ndarray], slo: Mapping[str, float | None]) -> float | None:
    """Share of all sent requests that meet the SLO; rejected, failed and unfinished ones are misses. None without an
    SLO or without requests.
    """
    if not len(columns["status"]) or all(limit is None for limit in slo.values()):
        return None
    return float(meets(columns, slo).mean())


def measured_window(columns: Mapping[str, np.ndarray], end_s: float) -> tuple[float, float]:
    """From the first send to the last finish of the measured requests, as ``vllm bench serve`` times a run.

    To the run's end ``end_s`` where none finished.
    """
    if not len(columns["arrival_s"]):
        return (0.0, 0.0)
    finish_s = (columns["finish_s"] + columns["return_s"])[columns["status"] == COMPLETED]
    return float(columns["arrival_s"].min()), float(finish_s.max()) if len(finish_s) else end_s


def throughput(columns: Mapping[str, np.ndarray], duration_s: float) -> dict[str, float | None]:
    """Of completed requests over the measured window."""
    done = columns["status"] == COMPLETED
    output_tokens = int(columns["output_tokens"][done].sum())
    total_tokens = output_tokens + int(columns["prompt_tokens"][done].sum())
    counts = {
        "requests_per_s": int(done.sum()),
        "output_tokens_per_s": output_tokens,
        "total_tokens_per_s": total_tokens,
    }
    return {name: count / duration_s if duration_s > 0 else None for name, count in counts.items()}


def as_json(value: Any) -> Any:
    """Numpy scalars as Python ones, NaN and infinity as None, throughout."""
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
