"""Statistics of samples as result files have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

import numpy as np

from sim.bench.result import PERCENTILES, percentile_name
from sim.results.definitions import DEFINITIONS, Samples, mean_and_std, percentiles
from sim.results.streams import Streams


def statistics(samples: Samples, *, stepwise: bool = False) -> dict[str, float]:
    """Mean, deviation, extremes, count and percentiles; only the count where there are no values."""
    values, weights = samples
    count = len(values) if weights is None else int(weights.sum())
    if not len(values):
        return {"count": 0}
    mean, std = mean_and_std(samples)
    ranks = percentiles(samples, PERCENTILES, stepwise=stepwise)
    return {
        "mean": mean,
        "std": std,
        "min": float(values.min()),
        "max": float(values.max()),
        "count": count,
        **{percentile_name(percentile): value for percentile, value in zip(PERCENTILES, ranks, strict=True)},
    }


def metrics_of(streams: Streams, tool: str) -> dict[str, dict[str, float]]:
    """Every metric of a tool, and the lengths."""
    definition = DEFINITIONS[tool]
    lengths: Mapping[str, Callable[[Streams], Samples]] = {
        "prompt_tokens": lambda seen: Samples(seen.prompt_tokens.astype(np.float64)),
        "output_tokens": lambda seen: Samples(seen.output_tokens.astype(np.float64)),
    }
    measures = {**definition.measures(), **lengths}
    return {
        name: statistics(measure(streams), stepwise=definition.stepwise)
        for name, measure in measures.items()
        if measure is not None
    }


def peaks(streams: Streams) -> tuple[float, int]:
    """Most chunks that arrived in one second, and most requests in flight in one: seconds count from the first send,
    and a request is in flight in every second that it touches (vllm bench serve 0.33).
    """
    if not len(streams):
        return 0.0, 0
    start_s = float(streams.sent_s.min())
    seconds = ceil(float(streams.last_s.max()) - start_s) + 1
    chunks = np.bincount((streams.chunk_s - start_s).astype(np.int64), minlength=seconds)
    first, last = ((times_s - start_s).astype(np.int64) for times_s in (streams.sent_s, streams.last_s))
    in_flight = np.cumsum(np.bincount(first, minlength=seconds + 1) - np.bincount(last + 1, minlength=seconds + 1))
    return float(chunks.max()), int(in_flight.max())
