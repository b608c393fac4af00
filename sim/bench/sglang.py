"""Result lines of sglang's ``bench_serving --output-file``: JSON, one run per line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sim.bench.fields import known, mapping, number, text, whole
from sim.bench.result import BenchResult

METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2e_latency": "e2e_s"}
_STATISTIC = re.compile(r"(mean|median|std|max|p\d+)_(ttft|tpot|itl|e2e_latency)_ms")
SETTINGS = (
    "tag",
    "backend",
    "dataset_name",
    "request_rate",
    "max_concurrency",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
)


def is_sglang(data: Any) -> bool:
    """Whether a line is a run."""
    return isinstance(data, Mapping) and {"backend", "completed", "mean_e2e_latency_ms"} <= data.keys()


def read_sglang(data: Mapping[str, Any]) -> BenchResult:
    """One run."""
    metrics: dict[str, dict[str, float]] = {}
    for name in data:
        match = _STATISTIC.fullmatch(name)
        value = number(data, name) if match else None
        if match and value is not None:
            statistic = "p50" if match[1] == "median" else match[1]
            metrics.setdefault(METRICS[match[2]], {})[statistic] = value / 1000
    total = known({name: number(data, name) for name in ("total_throughput", "total_token_throughput")})
    return BenchResult(
        tool="sglang",
        model=text(mapping(data, "server_info"), "model_path"),
        settings={name: data[name] for name in SETTINGS if name in data},
        completed=whole(data, "completed"),
        duration_s=number(data, "duration"),
        prompt_tokens=whole(data, "total_input_tokens"),
        output_tokens=whole(data, "total_output_tokens"),
        requests_per_s=number(data, "request_throughput"),
        output_tokens_per_s=number(data, "output_throughput"),
        total_tokens_per_s=next(iter(total.values()), None),
        goodput_requests_per_s=number(data, "request_goodput"),
        metrics=metrics,
    )
