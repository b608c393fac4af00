"""Files of aiperf: ``profile_export_aiperf.json`` (statistics) and ``profile_export.jsonl`` (a record per request)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from sim.bench.fields import known, listed, mapping, number, text, whole
from sim.bench.result import PERCENTILES, BenchResult, percentile_name
from sim.bench.statistics import metrics_of
from sim.results.streams import Streams, streams_of

NS = 1e-9
METRICS = {
    "time_to_first_token": ("ttft_s", "ms", 1e-3),
    "time_to_second_token": ("ttst_s", "ms", 1e-3),
    "inter_token_latency": ("itl_s", "ms", 1e-3),
    "inter_chunk_latency": ("inter_chunk_s", "ms", 1e-3),
    "request_latency": ("e2e_s", "ms", 1e-3),
    "input_sequence_length": ("prompt_tokens", "tokens", 1.0),
    "output_sequence_length": ("output_tokens", "tokens", 1.0),
}
"""Tag of a distribution: its name here, its unit and that unit in SI."""
SCALARS = {
    "request_count": ("completed", "requests"),
    "error_request_count": ("failed", "requests"),
    "total_isl": ("prompt_tokens", "tokens"),
    "total_osl": ("output_tokens", "tokens"),
    "benchmark_duration": ("duration_s", "sec"),
    "request_throughput": ("requests_per_s", "requests/sec"),
    "output_token_throughput": ("output_tokens_per_s", "tokens/sec"),
    "total_token_throughput": ("total_tokens_per_s", "tokens/sec"),
    "goodput": ("goodput_requests_per_s", "requests/sec"),
}
"""Tag of a single figure, under ``avg``."""
COUNTS = frozenset({"completed", "failed", "prompt_tokens", "output_tokens"})
STATISTICS = {"avg": "mean", "std": "std", "min": "min", "max": "max", "count": "count"}


def is_aiperf(data: Any) -> bool:
    """Whether this is the file of statistics."""
    return isinstance(data, Mapping) and "avg" in mapping(data, "request_latency")


def read_aiperf(data: Mapping[str, Any]) -> BenchResult:
    """The file of statistics."""
    metrics = {name: _statistics(mapping(data, tag), factor) for tag, (name, _, factor) in METRICS.items()}
    plain: dict[str, Any] = {}
    for tag, (name, _) in SCALARS.items():
        plain[name] = (whole if name in COUNTS else number)(mapping(data, tag), "avg")
    endpoint, loadgen = mapping(data, "input_config", "endpoint"), mapping(data, "input_config", "loadgen")
    models = listed(endpoint, "model_names")
    return BenchResult(
        tool="aiperf",
        model=models[0] if models and isinstance(models[0], str) else text(endpoint, "model"),
        settings=dict(loadgen),
        metrics={name: statistics for name, statistics in metrics.items() if statistics},
        **plain,
    )


def _statistics(data: Mapping[str, Any], factor: float) -> dict[str, float]:
    names = STATISTICS | {percentile_name(value): percentile_name(value) for value in PERCENTILES}
    found = known({name: number(data, key) for key, name in names.items()})
    return {name: value if name == "count" else value * factor for name, value in found.items()}


def is_record(data: Any) -> bool:
    """Whether this is a line of the file of records."""
    return isinstance(data, Mapping) and "metrics" in data and "request_start_ns" in mapping(data, "metadata")


def read_records(records: Iterable[Mapping[str, Any]]) -> BenchResult:
    """All lines of the file of records: requests that answered, as streams; the others are counted."""
    answers, failed = [], 0
    for record in records:
        metrics = mapping(record, "metrics")
        ttft_ms = number(mapping(metrics, "time_to_first_token"), "value")
        if record.get("error") is not None or ttft_ms is None:
            failed += 1
            continue
        sent_s = (whole(mapping(record, "metadata"), "request_start_ns") or 0) * NS
        gaps_s = [gap / 1000 for gap in listed(mapping(metrics, "inter_chunk_latency"), "value")]
        prompt = whole(mapping(metrics, "input_sequence_length"), "value") or 0
        output = whole(mapping(metrics, "output_sequence_length"), "value") or 0
        chunks = list(accumulate(gaps_s, initial=sent_s + ttft_ms / 1000))
        tokens = [1] * output if len(chunks) == output else None
        answers.append((sent_s, chunks, tokens, prompt, output))
    first_s = min((sent_s for sent_s, *_ in answers), default=0.0)
    streams = streams_of(
        (sent_s - first_s, [time_s - first_s for time_s in chunks], tokens, prompt, output)
        for sent_s, chunks, tokens, prompt, output in answers
    )
    return BenchResult(
        tool="aiperf", completed=len(streams), failed=failed, metrics=metrics_of(streams, "aiperf"), streams=streams
    )


def to_aiperf(result: BenchResult) -> dict[str, Any]:
    """The file of statistics."""
    data: dict[str, Any] = {}
    for tag, (name, unit) in SCALARS.items():
        value = getattr(result, name)
        if value is not None:
            data[tag] = {"unit": unit, "avg": value}
    names = {name: key for key, name in STATISTICS.items()}
    for tag, (name, unit, factor) in METRICS.items():
        statistics = result.metrics.get(name, {})
        written = {
            names.get(statistic, statistic): value if statistic == "count" else value / factor
            for statistic, value in statistics.items()
        }
        if written:
            data[tag] = {"unit": unit, **written}
    data["input_config"] = {"endpoint": {"model_names": [result.model]}, "loadgen": _loadgen(result)}
    data["was_cancelled"] = False
    return data


def _loadgen(result: BenchResult) -> dict[str, Any]:
    settings = result.settings
    if result.tool == "aiperf" and "num_prompts" not in settings:
        return dict(settings)
    rate = settings.get("request_rate")
    return {
        **({} if rate in {None, "inf"} else {"request_rate": rate, "arrival_pattern": "poisson"}),
        **({} if settings.get("max_concurrency") is None else {"concurrency": settings["max_concurrency"]}),
        **({} if settings.get("num_prompts") is None else {"request_count": settings["num_prompts"]}),
    }


def to_records(streams: Streams) -> list[dict[str, Any]]:
    """The lines of the file of records, one per answer."""
    chunks = np.split(streams.chunk_s, streams.offsets[1:-1]) if len(streams) else []
    columns = zip(
        streams.sent_s.tolist(), streams.prompt_tokens.tolist(), streams.output_tokens.tolist(), chunks, strict=True
    )
    return [
        {
            "metadata": {
                "session_num": index,
                "turn_index": 0,
                "request_start_ns": round(sent_s / NS),
                "request_end_ns": round(float(times_s[-1]) / NS),
                "benchmark_phase": "profiling",
                "was_cancelled": False,
            },
            "metrics": {
                "input_sequence_length": {"value": prompt, "unit": "tokens"},
                "output_sequence_length": {"value": output, "unit": "tokens"},
                "time_to_first_token": {"value": (float(times_s[0]) - sent_s) * 1000, "unit": "ms"},
                "request_latency": {"value": (float(times_s[-1]) - sent_s) * 1000, "unit": "ms"},
                "inter_chunk_latency": {"value": (np.diff(times_s) * 1000).tolist(), "unit": "ms"},
            },
            "error": None,
        }
        for index, (sent_s, prompt, output, times_s) in enumerate(columns)
    ]
