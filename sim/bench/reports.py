"""Summaries that others write: llm-d benchmark reports, MLPerf loadgen summaries, llama-bench tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sim.bench.fields import known, mapping, number, whole
from sim.bench.result import BenchResult

LLMD_METRICS = {
    "time_to_first_token": "ttft_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "normalized_time_per_output_token": "ntpot_s",
    "request_latency": "e2e_s",
}
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
MLPERF_METRICS = {"latency": "e2e_s", "first token latency": "ttft_s", "time to output token": "tpot_s"}
_MLPERF_STATISTIC = re.compile(
    r"(?P<statistic>Min|Max|Mean|[\d.]+ percentile) (?P<metric>latency|first token latency|time to output token)"
    r" \(ns\)\s*:\s*(?P<ns>\d+)",
    re.IGNORECASE,
)
_LLAMA_ROW = re.compile(r"(?P<kind>pp|tg)(?P<tokens>\d+)(?: @ d(?P<depth>\d+))?$")


def is_llmd(data: Any) -> bool:
    """Whether this is a benchmark report of llm-d (version 0.2)."""
    return bool(isinstance(data, Mapping) and mapping(data, "results", "request_performance", "aggregate"))


def read_llmd(data: Mapping[str, Any]) -> BenchResult:
    """One report."""
    found = mapping(data, "results", "request_performance", "aggregate")
    requests, throughput = mapping(found, "requests"), mapping(found, "throughput")
    metrics = {name: _llmd_statistics(mapping(found, "latency", key)) for key, name in LLMD_METRICS.items()}
    metrics["prompt_tokens"] = _llmd_statistics(mapping(requests, "input_length"))
    metrics["output_tokens"] = _llmd_statistics(mapping(requests, "output_length"))
    total, failed = whole(requests, "total"), whole(requests, "failures")
    return BenchResult(
        tool="llm-d",
        completed=None if total is None else total - (failed or 0),
        failed=failed,
        requests_per_s=number(mapping(throughput, "request_rate"), "mean"),
        output_tokens_per_s=number(mapping(throughput, "output_token_rate"), "mean"),
        total_tokens_per_s=number(mapping(throughput, "total_token_rate"), "mean"),
        metrics={name: statistics for name, statistics in metrics.items() if statistics},
    )


def _llmd_statistics(data: Mapping[str, Any]) -> dict[str, float]:
    """``p0p1`` and ``p99p9`` are written without points."""
    unit = str(data.get("units", "")).partition("/")[0]
    factor = UNITS.get(unit, 1.0)
    names = {name: re.sub(r"(?<=\d)p", ".", name) for name in data if name != "units"}
    return {name: value * factor for name, value in known({names[key]: number(data, key) for key in names}).items()}


def is_mlperf(content: str) -> bool:
    """Whether this is ``mlperf_log_summary.txt``."""
    return "MLPerf Results Summary" in content


def read_mlperf(content: str) -> BenchResult:
    """Latencies of a server or offline run; the log has nanoseconds."""
    metrics: dict[str, dict[str, float]] = {}
    for match in _MLPERF_STATISTIC.finditer(content):
        statistic = match["statistic"].lower()
        name = f"p{float(statistic.split()[0]):g}" if statistic[0].isdigit() else statistic
        metrics.setdefault(MLPERF_METRICS[match["metric"].lower()], {})[name] = int(match["ns"]) * 1e-9

    def figure(label: str) -> float | None:
        match = re.search(rf"^{label}\s*:\s*([\d.]+)", content, re.MULTILINE)
        return None if match is None else float(match[1])

    scheduled = figure("Scheduled samples per second")
    return BenchResult(
        tool="mlperf",
        settings={} if scheduled is None else {"request_rate": scheduled},
        requests_per_s=figure("Completed samples per second"),
        output_tokens_per_s=figure("Completed tokens per second"),
        metrics=metrics,
    )


def is_llama_bench(content: str) -> bool:
    """Whether this holds the table that llama-bench prints."""
    return any(line.startswith("| model ") and " t/s " in line for line in content.splitlines())


def read_llama_bench(content: str) -> list[BenchResult]:
    """Every row: ``pp`` is a prompt of so many tokens, ``tg`` so many generated ones; figures are tokens per second."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in content.splitlines() if "|" in line
    ]
    header: list[str] = []
    results = []
    for cells in rows:
        if "t/s" in cells and "test" in cells:
            header = cells
            continue
        named = dict(zip(header, cells, strict=False))
        match = _LLAMA_ROW.match(named.get("test", ""))
        if match is None:
            continue
        per_s, tokens = float(named["t/s"].split("±")[0]), int(match["tokens"])
        prefill = match["kind"] == "pp"
        results.append(
            BenchResult(
                tool="llama-bench",
                model=named.get("model"),
                settings={name: value for name, value in named.items() if name not in {"model", "t/s"}},
                prompt_tokens=tokens if prefill else None,
                output_tokens=None if prefill else tokens,
                output_tokens_per_s=None if prefill else per_s,
                total_tokens_per_s=per_s,
                metrics={} if prefill else {"tpot_s": {"mean": 1 / per_s}},
            )
        )
    return results
