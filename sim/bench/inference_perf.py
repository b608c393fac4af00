"""Lifecycle reports of inference-perf: ``summary_`` and ``stage_N_lifecycle_metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.bench.fields import mapping, number, scaled, whole
from sim.bench.result import BenchResult

METRICS = {
    "time_to_first_token": "ttft_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "request_latency": "e2e_s",
    "normalized_time_per_output_token": "ntpot_s",
}
LENGTHS = {"prompt_len": "prompt_tokens", "output_len": "output_tokens"}
NAMES = {"median": "p50"}
HALF = (0.45, 0.55)
"""Where a reported TPOT lies between what the latencies say and half of it, when it is halved."""


def is_inference_perf(data: Any) -> bool:
    """Whether this is a lifecycle report."""
    return bool(isinstance(data, Mapping) and mapping(data, "successes", "latency") and "load_summary" in data)


def read_inference_perf(data: Mapping[str, Any]) -> BenchResult:
    """One report. A TPOT and ITL that were halved (see ``halved``) are doubled, and a notice says so."""
    found = mapping(data, "successes")
    metrics = {name: _statistics(mapping(found, "latency", key)) for key, name in METRICS.items()}
    metrics |= {name: _statistics(mapping(found, key)) for key, name in LENGTHS.items()}
    metrics = {name: statistics for name, statistics in metrics.items() if statistics}
    notices: tuple[str, ...] = ()
    if halved(metrics):
        for name in ("tpot_s", "itl_s"):
            metrics[name] = scaled(metrics[name], 2.0)
        notices = (
            "TPOT and ITL are half of what TTFT, latency and lengths say: every token was counted twice; doubled here",
        )
    completed, load = whole(found, "count"), mapping(data, "load_summary")
    throughput = mapping(found, "throughput")
    return BenchResult(
        tool="inference-perf",
        settings={name: load[name] for name in ("requested_rate", "send_duration") if name in load},
        completed=completed,
        failed=whole(mapping(data, "failures"), "count"),
        prompt_tokens=_total(metrics.get("prompt_tokens"), completed),
        output_tokens=_total(metrics.get("output_tokens"), completed),
        requests_per_s=number(throughput, "requests_per_sec"),
        output_tokens_per_s=number(throughput, "output_tokens_per_sec"),
        total_tokens_per_s=number(throughput, "total_tokens_per_sec"),
        metrics=metrics,
        notices=notices,
    )


def halved(metrics: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether the reported TPOT is half of (latency - TTFT) / (N - 1), taken at the medians.

    Some versions re-tokenise the stream so that each token appears twice, the second time at no distance from the
    first: the number of gaps doubles, and with it TPOT and ITL halve.
    """
    try:
        latency_s, ttft_s, tokens, tpot_s = (
            metrics[name]["p50"] for name in ("e2e_s", "ttft_s", "output_tokens", "tpot_s")
        )
    except KeyError:
        return False
    if tokens <= 1 or latency_s <= ttft_s:
        return False
    ratio = tpot_s * (tokens - 1) / (latency_s - ttft_s)
    return HALF[0] < ratio < HALF[1]


def _statistics(data: Mapping[str, Any]) -> dict[str, float]:
    values = ((NAMES.get(name, name), number(data, name)) for name in data)
    return {name: value for name, value in values if value is not None}


def _total(lengths: Mapping[str, float] | None, count: int | None) -> int | None:
    return None if lengths is None or count is None else round(lengths["mean"] * count)
