"""Errors against measurements, as tables of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEADER = ("n", "MAPE", "median", "p90", "bias")
GROUPED = ("tpot_mean", "tpot_p50", "ttft_mean", "ttft_p50", "e2e_mean", "output_tokens_per_s")
"""Metrics that are told by group."""
TITLES = {"gpu": "GPU", "engine": "Engine", "model": "Model", "load": "Load", "set": "Set"}
Table = tuple[str, Sequence[str], list[list[str]]]
"""Title, header, rows."""


def tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """What ``sim validate`` tells: errors by metric, with and without named groups, then by group."""
    yield "Error by metric", ("metric", *HEADER), _metric_rows(found["metrics"])
    groups = found["apart"]["groups"]
    if groups:
        yield "Without the rows set apart below", ("metric", *HEADER), _metric_rows(found["apart"]["metrics_without"])
        rows = [[group["name"], *row] for group in groups for row in _metric_rows(group["metrics"], GROUPED)]
        yield "Set apart by rule", ("group", "metric", *HEADER), rows
    for axis, by_value in found["by"].items():
        rows = [[value, *row] for value, metrics in by_value.items() for row in _metric_rows(metrics, GROUPED)]
        yield f"By {axis}", (TITLES.get(axis, axis), "metric", *HEADER), rows


def skipped_rows(found: Mapping[str, Any]) -> list[tuple[int, str]]:
    """How many cases were skipped for each reason, most frequent first."""
    counted = Counter(entry["reason"] for entry in found["skipped"])
    return [(count, reason) for reason, count in counted.most_common()]


def report_markdown(found: Mapping[str, Any]) -> str:
    """The whole report."""
    parts = ["# Predicted against measured", ""]
    for title, header, rows in tables(found):
        parts += [f"## {title}", "", _line(header), _line(["---"] * len(header)), *map(_line, rows), ""]
        if title == "Set apart by rule":
            parts += [*(f"- **{group['name']}**: {group['rule']}." for group in found["apart"]["groups"]), ""]
    parts += [f"## Skipped: {len(found['skipped']):,} cases", ""]
    parts += [f"- {count:,}: {reason}" for count, reason in skipped_rows(found)]
    return "\n".join(parts) + "\n"


def replay_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per latency and figure: measured, predicted, error."""
    return [
        [
            name.removesuffix("_s").upper(),
            figure,
            f"{one['measured']:.4g} s",
            f"{one['predicted']:.4g} s",
            _signed(one["error"]),
        ]
        for name, figures in found.items()
        for figure, one in figures.items()
    ]


def _metric_rows(metrics: Mapping[str, Any], wanted: Sequence[str] | None = None) -> list[list[str]]:
    return [
        [
            name,
            f"{one['n']:,}",
            *(f"{100 * one[key]:.1f} %" for key in ("mape", "median_ape", "p90_ape")),
            _signed(one["bias"]),
        ]
        for name, one in metrics.items()
        if wanted is None or name in wanted
    ]


def _signed(error: float) -> str:
    return f"{100 * error:+.1f} %"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
