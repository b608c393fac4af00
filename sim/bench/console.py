"""The block of figures that ``vllm bench serve`` prints, one or several in a text."""

from __future__ import annotations

import re

from sim.bench.result import BenchResult

TITLE = "Serving Benchmark Result"
_LINE = re.compile(r"^(?P<name>[A-Za-z0-9][^:]*?):\s+(?P<value>[0-9.]+)\s*$")
_STATISTIC = re.compile(r"(Mean|Median|P[\d.]+) (TTFT|TPOT|ITL|E2EL) \(ms\)")
COUNTS = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Total input tokens": "prompt_tokens",
    "Total generated tokens": "output_tokens",
}
FIGURES = {
    "Benchmark duration (s)": "duration_s",
    "Request throughput (req/s)": "requests_per_s",
    "Request goodput (req/s)": "goodput_requests_per_s",
    "Output token throughput (tok/s)": "output_tokens_per_s",
    "Total token throughput (tok/s)": "total_tokens_per_s",
}


def read_console(content: str) -> list[BenchResult]:
    """Every block of the text; figures are rounded as printed."""
    return [_block(part) for part in content.split(TITLE)[1:]]


def _block(content: str) -> BenchResult:
    plain: dict[str, float] = {}
    metrics: dict[str, dict[str, float]] = {}
    names = {name.lower(): field for name, field in (COUNTS | FIGURES).items()}
    for line in content.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        value, statistic = float(match["value"]), _STATISTIC.fullmatch(match["name"])
        if statistic is not None:
            metric = "e2e_s" if statistic[2] == "E2EL" else f"{statistic[2].lower()}_s"
            name = "p50" if statistic[1] == "Median" else statistic[1].lower()
            metrics.setdefault(metric, {})[name] = value / 1000
        elif (field := names.get(match["name"].lower())) is not None:
            plain[field] = value
    counts = {field: int(plain.pop(field)) for field in COUNTS.values() if field in plain}
    return BenchResult(tool="vllm", metrics=metrics, **counts, **plain)  # type: ignore[arg-type]
