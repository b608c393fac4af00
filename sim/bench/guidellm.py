"""Reports of guidellm: ``benchmarks.json`` of 0.3 and the report of 0.8 (version 2), each with one or more benchmarks.

Statistics are apart for successful, incomplete and errored requests; the successful ones are read. 0.3 divided by the
output tokens after the first token's time; 0.8 divides the time from the send, and weights requests by their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.bench.fields import known, listed, mapping, number, text, whole
from sim.bench.result import BenchResult
from sim.results.streams import Streams

METRICS = {
    "time_to_first_token_ms": ("ttft_s", 1e-3),
    "time_per_output_token_ms": ("tpot_s", 1e-3),
    "inter_token_latency_ms": ("itl_s", 1e-3),
    "request_latency": ("e2e_s", 1.0),
    "prompt_token_count": ("prompt_tokens", 1.0),
    "output_token_count": ("output_tokens", 1.0),
}
STATISTICS = {"mean": "mean", "std_dev": "std", "min": "min", "max": "max", "count": "count"}
PERCENTILES = {
    "p001": "p0.1", "p01": "p1", "p05": "p5", "p10": "p10", "p25": "p25", "p50": "p50", "p75": "p75", "p90": "p90",
    "p95": "p95", "p99": "p99", "p999": "p99.9",
}  # fmt: skip
VERSION = 2
"""Of the report that is written."""


def is_guidellm(data: Any) -> bool:
    """Whether this is a report."""
    return isinstance(data, Mapping) and any(
        isinstance(benchmark, Mapping) and mapping(benchmark, "metrics", "request_latency")
        for benchmark in listed(data, "benchmarks")
    )


def read_guidellm(data: Mapping[str, Any]) -> list[BenchResult]:
    """Every benchmark of a report."""
    return [_benchmark(data, benchmark) for benchmark in listed(data, "benchmarks")]


def _benchmark(data: Mapping[str, Any], benchmark: Mapping[str, Any]) -> BenchResult:
    found = mapping(benchmark, "metrics")
    totals = mapping(found, "request_totals") or mapping(benchmark, "request_totals")
    metrics = {
        name: _statistics(mapping(found, key, "successful"), factor)
        for key, (name, factor) in METRICS.items()
        if mapping(found, key, "successful")
    }
    backends = (mapping(data, "config", "spec", "backend"), mapping(benchmark, "worker"))
    model = next(filter(None, (text(backend, "model") or text(backend, "backend_model") for backend in backends)), None)
    strategy = mapping(benchmark, "config", "strategy") or mapping(benchmark, "args", "strategy")
    return BenchResult(
        tool="guidellm",
        model=model,
        settings={name: strategy[name] for name in ("type_", "rate", "max_concurrency", "streams") if name in strategy},
        completed=whole(totals, "successful"),
        failed=whole(totals, "errored"),
        incomplete=whole(totals, "incomplete"),
        duration_s=number(benchmark, "duration"),
        prompt_tokens=_total(found, "prompt_token_count"),
        output_tokens=_total(found, "output_token_count"),
        requests_per_s=number(mapping(found, "requests_per_second", "successful"), "mean"),
        output_tokens_per_s=number(mapping(found, "output_tokens_per_second", "successful"), "mean"),
        total_tokens_per_s=number(mapping(found, "tokens_per_second", "successful"), "mean"),
        goodput_requests_per_s=number(mapping(found, "request_goodput", "successful"), "mean"),
        metrics=metrics,
    )


def _statistics(data: Mapping[str, Any], factor: float) -> dict[str, float]:
    plain = known({name: number(data, key) for key, name in STATISTICS.items()})
    ranks = known({name: number(mapping(data, "percentiles"), key) for key, name in PERCENTILES.items()})
    return {name: value if name == "count" else value * factor for name, value in (plain | ranks).items()}


def _total(metrics: Mapping[str, Any], name: str) -> int | None:
    value = number(mapping(metrics, name, "successful"), "total_sum")
    return None if value is None else round(value)


def to_guidellm(result: BenchResult) -> dict[str, Any]:
    """The report of one benchmark, with the fields a reader of guidellm's reports looks at."""
    metrics: dict[str, Any] = {
        "request_totals": known({
            "successful": result.completed, "errored": result.failed, "incomplete": result.incomplete,
            "total": sum(count or 0 for count in (result.completed, result.failed, result.incomplete)),
        }),
    }  # fmt: skip
    for key, (name, factor) in METRICS.items():
        if name in result.metrics:
            metrics[key] = {"successful": _written(result.metrics[name], factor)}
    for key, total in (("prompt_token_count", result.prompt_tokens), ("output_token_count", result.output_tokens)):
        if key in metrics and total is not None:
            metrics[key]["successful"]["total_sum"] = float(total)
    rates = {
        "requests_per_second": result.requests_per_s,
        "output_tokens_per_second": result.output_tokens_per_s,
        "tokens_per_second": result.total_tokens_per_s,
        "request_goodput": result.goodput_requests_per_s,
    }
    metrics |= {key: {"successful": {"mean": rate}} for key, rate in rates.items() if rate is not None}
    benchmark: dict[str, Any] = {
        "type_": "generative_benchmark",
        "config": {"strategy": _strategy(result)},
        "metrics": metrics,
        "duration": result.duration_s,
    }
    if result.streams is not None:
        benchmark["requests"] = {"successful": _requests(result.streams), "errored": [], "incomplete": []}
    return {
        "metadata": {"version": VERSION},
        "config": {"spec": {"backend": {"model": result.model}}},
        "benchmarks": [benchmark],
    }


def _written(statistics: Mapping[str, float], factor: float) -> dict[str, Any]:
    def value(name: str) -> float:
        return statistics[name] if name == "count" else statistics[name] / factor

    plain = {key: value(name) for key, name in STATISTICS.items() if name in statistics}
    ranks = {key: value(name) for key, name in PERCENTILES.items() if name in statistics}
    middle = {"median": ranks["p50"]} if "p50" in ranks else {}
    spread = {"variance": plain["std_dev"] ** 2} if "std_dev" in plain else {}
    return {**plain, **middle, **spread, "percentiles": ranks}


def _strategy(result: BenchResult) -> dict[str, Any]:
    settings = result.settings
    if "type_" in settings:
        return dict(settings)
    rate, limit = settings.get("request_rate"), settings.get("max_concurrency")
    if isinstance(rate, int | float) and math.isfinite(rate):
        return {"type_": "poisson", "rate": rate, "max_concurrency": limit}
    if limit is None:
        return {"type_": "throughput", "max_concurrency": None}
    return {"type_": "synchronous"} if limit == 1 else {"type_": "concurrent", "streams": limit}


def _requests(streams: Streams) -> list[dict[str, Any]]:
    latency_s, ttft_s = streams.closed_s - streams.sent_s, streams.first_s - streams.sent_s
    later_s, tokens = streams.last_s - streams.first_s, streams.output_tokens
    with np.errstate(invalid="ignore", divide="ignore"):
        gap_s = later_s / (tokens - 1)
    columns = zip(
        streams.prompt_tokens.tolist(), tokens.tolist(), streams.sent_s.tolist(), streams.closed_s.tolist(),
        latency_s.tolist(), ttft_s.tolist(), ((streams.last_s - streams.sent_s) / tokens).tolist(), gap_s.tolist(),
        strict=True,
    )  # fmt: skip
    return [
        {
            "request_id": str(index),
            "prompt_tokens": prompt,
            "output_tokens": output,
            "request_start_time": sent,
            "request_end_time": closed,
            "request_latency": latency,
            "time_to_first_token_ms": ttft * 1000,
            "time_per_output_token_ms": per_token * 1000,
            "inter_token_latency_ms": gap * 1000 if output > 1 else None,
        }
        for index, (prompt, output, sent, closed, latency, ttft, per_token, gap) in enumerate(columns)
    ]
