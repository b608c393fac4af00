"""A simulated run as a load generator would report it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.bench.result import BenchResult
from sim.bench.statistics import metrics_of, peaks
from sim.results.requests import COMPLETED, UNFINISHED
from sim.results.summary import measured_rows, measured_streams

if TYPE_CHECKING:
    from sim.results.result import Result


def bench_result(result: Result, tool: str) -> BenchResult:
    """What ``tool`` (a name of ``sim.results.definitions``) would report. The run must have kept its streams."""
    run, summary = result.run, result.summary
    everyone = run.requests.columns()
    rows = measured_rows(everyone, run.setup.loaded.spec.measure.warmup)
    status, streams = everyone["status"][rows], measured_streams(run, rows)
    completed, incomplete = int((status == COMPLETED).sum()), int((status == UNFINISHED).sum())
    most_tokens, most_concurrent = peaks(streams)
    return BenchResult(
        tool=tool,
        model=summary["model"],
        settings=_settings(result),
        completed=completed,
        failed=len(status) - completed - incomplete,
        incomplete=incomplete,
        duration_s=summary["duration_s"],
        prompt_tokens=int(streams.prompt_tokens.sum()),
        output_tokens=int(streams.output_tokens.sum()),
        requests_per_s=summary["throughput"]["requests_per_s"],
        output_tokens_per_s=summary["throughput"]["output_tokens_per_s"],
        total_tokens_per_s=summary["throughput"]["total_tokens_per_s"],
        goodput_requests_per_s=summary["slo"]["goodput_requests_per_s"],
        most_output_tokens_per_s=most_tokens,
        most_concurrent=most_concurrent,
        metrics=metrics_of(streams, tool),
        streams=streams,
    )


def _settings(result: Result) -> dict[str, Any]:
    """The load under vllm bench's names, which the others are translated from; "inf" is a load without a rate."""
    spec, run = result.loaded.spec, result.run
    arrivals = spec.traffic.arrivals
    cv = getattr(arrivals, "cv", None)
    burstiness = getattr(arrivals, "burstiness", None) or (None if cv is None else 1 / cv**2)
    rate = getattr(arrivals, "rate", None)
    return {
        "backend": run.setup.rules.engine,
        "num_prompts": int(np.size(run.requests.columns()["status"])),
        "request_rate": "inf" if rate is None else rate,
        "burstiness": 1.0 if burstiness is None else burstiness,
        "max_concurrency": getattr(arrivals, "concurrency", None) or getattr(arrivals, "max_concurrency", None),
    }
