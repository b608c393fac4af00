"""What a load generator reports of one run, in one shape and SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sim.results.streams import Streams

PERCENTILES = (0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
"""All that any tool reports."""


def percentile_name(percentile: float) -> str:
    """``p99``, ``p99.9``: the statistic's name in ``BenchResult.metrics``."""
    return f"p{percentile:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One run. A figure is None, or a statistic absent, where its source does not have it.

    ``metrics``: by name (``ttft_s``, ``tpot_s``, ``itl_s``, ``e2e_s``, a tool's own, ``prompt_tokens``,
    ``output_tokens``), the statistics ``mean std min max count p0.1 ... p99.9``. Names are the same for all tools, what
    they mean is the tool's own (``sim/results/definitions.py``).
    """

    tool: str
    """Whose definitions the metrics follow."""
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the tool says of the load, under its own names."""
    completed: int | None = None
    failed: int | None = None
    incomplete: int | None = None
    duration_s: float | None = None
    prompt_tokens: int | None = None
    """Of all completed requests together; ``output_tokens`` too."""
    output_tokens: int | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    goodput_requests_per_s: float | None = None
    most_output_tokens_per_s: float | None = None
    """Most chunks that arrived in one second (vllm bench)."""
    most_concurrent: int | None = None
    """Most requests in flight in one second (vllm bench)."""
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    streams: Streams | None = None
    """What is known of each answer."""
    notices: tuple[str, ...] = ()
    """What the reader had to say about the file."""

    def summary(self) -> dict[str, Any]:
        """All of it but the streams, as plain types."""
        return {column.name: getattr(self, column.name) for column in fields(self) if column.name != "streams"} | {
            "streams": None if self.streams is None else len(self.streams)
        }

    def figures(self) -> dict[str, float]:
        """Every number that is known, by name: ``ttft_s.p99``, ``requests_per_s``."""
        plain = {
            name: value
            for name in (column.name for column in fields(self))
            if isinstance(value := getattr(self, name), int | float)
        }
        return plain | {
            f"{metric}.{statistic}": value
            for metric, statistics in self.metrics.items()
            for statistic, value in statistics.items()
        }
