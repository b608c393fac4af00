"""Result files of load generators on the console."""

from __future__ import annotations

from collections.abc import Sequence

from sim.bench import BenchResult
from sim.report.format import duration, significant

COLUMNS = ("run", "tool", "completed", "req/s", "out tok/s", "TTFT", "TTFT p99", "TPOT", "TPOT p99", "ITL", "E2E")


def bench_cells(runs: Sequence[tuple[str, BenchResult]]) -> list[list[str]]:
    """A row of ``COLUMNS`` per run, numbered; means where nothing is said, empty where there is none."""
    return [_cells(number, result) for number, (_, result) in enumerate(runs, start=1)]


def _cells(number: int, result: BenchResult) -> list[str]:
    def latency(metric: str, statistic: str = "mean") -> str:
        value = result.metrics.get(metric, {}).get(statistic)
        return "" if value is None else duration(value)

    rates = (result.requests_per_s, result.output_tokens_per_s)
    return [
        str(number),
        result.tool,
        "" if result.completed is None else f"{result.completed:,}",
        *("" if rate is None else significant(rate) for rate in rates),
        latency("ttft_s"),
        latency("ttft_s", "p99"),
        latency("tpot_s"),
        latency("tpot_s", "p99"),
        latency("itl_s"),
        latency("e2e_s"),
    ]


def bench_notes(runs: Sequence[tuple[str, BenchResult]]) -> list[tuple[str, str]]:
    """For each run, which file it is from, and what was said of it."""
    return [
        (f"{number}: {name}", "".join(f"; {notice}" for notice in result.notices))
        for number, (name, result) in enumerate(runs, start=1)
    ]
