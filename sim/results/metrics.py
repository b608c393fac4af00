"""Distributions, the measured window, attainment and goodput; each defined at its home.

Definitions are those of ``vllm bench serve`` (0.33): TTFT from the client's send; TPOT = (E2E - TTFT) / (N - 1),
undefined for N = 1; ITL = all gaps between a request's chunks, pooled over requests; percentiles interpolate linearly.
A step's tokens for a request arrive as one chunk: with speculation several tokens share one gap, and mean ITL exceeds
TPOT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 95, 99)
Distribution = dict[str, float | None]


def distribution(values: np.ndarray) -> Distribution:
    """Mean, percentiles and maximum of the values that exist; None for each when there are none."""
    values = values[~np.isnan(values)]
    names = ("mean", *(f"p{percentile}" for percentile in PERCENTILES), "max")
    if not len(values):
        return dict.fromkeys(names)
    figures = (values.mean(), *np.percentile(values, PERCENTILES), values.max())
    return {name: float(figure) for name, figure in zip(names, figures, strict=True)}


def weighted_distribution(values: np.ndarray, weights: np.ndarray) -> Distribution:
    """``distribution`` of every value repeated ``weight`` times, without repeating it."""
    count = int(weights.sum())
    if not count:
        return distribution(np.array([]))
    order = np.argsort(values, kind="stable")
    values, ends = values[order], np.cumsum(weights[order])
    figures: Distribution = {"mean": float(np.dot(values, weights[order]) / count)}
    for percentile in PERCENTILES:
        rank = (count - 1) * percentile / 100
        low = values[np.searchsorted(ends, np.floor(rank), side="right")]
        high = values[np.searchsorted(ends, np.ceil(rank), side="right")]
        figures[f"p{percentile}"] = float(low + (high - low) * (rank - np.floor(rank)))
    figures["max"] = float(values[-1])
    return figures


def meets(columns: Mapping[str, np.ndarray], slo: Mapping[str, float | None]) -> np.ndarray:
    """Whether each request completed within the SLO. A one-token answer is judged by TTFT (and E2E) alone."""
    good: np.ndarray = columns["status"] == "completed"
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
    finish_s = columns["finish_s"][columns["status"] == "completed"]
    return float(columns["arrival_s"].min()), float(finish_s.max()) if len(finish_s) else end_s


def throughput(columns: Mapping[str, np.ndarray], duration_s: float) -> dict[str, float | None]:
    """Of completed requests over the measured window."""
    done = columns["status"] == "completed"
    output_tokens = int(columns["output_tokens"][done].sum())
    total_tokens = output_tokens + int(columns["prompt_tokens"][done].sum())
    counts = {
        "requests_per_s": int(done.sum()),
        "output_tokens_per_s": output_tokens,
        "total_tokens_per_s": total_tokens,
    }
    return {name: count / duration_s if duration_s > 0 else None for name, count in counts.items()}


def select(columns: Mapping[str, np.ndarray], measured: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of the measured requests."""
    return {name: column[measured] for name, column in columns.items()}


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
