"""What ``sim traffic`` tells of a load, as rows that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.report.facts import left_out
from sim.report.format import count, defined, duration, percent, significant

LENGTHS = ("mean", "p50", "p90", "p99", "max")


def load_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and value; what is not known is left out."""
    return [row for row in (*_arrivals(summary), *_prompts(summary), *left_out(summary)) if row[1]]


def _arrivals(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("requests", count(summary["requests"]))]
    if summary["rate_per_s"] is None:
        clients = summary.get("clients")
        sent = f"{clients:,} clients, who send when answers come: no rate" if clients else "all at once: no rate"
        return [*rows, ("load", sent)]
    rows.append(("load", f"{significant(summary['rate_per_s'])} requests/s over {duration(summary['span_s'])}"))
    gaps = summary["gap_s"]
    longest = f"p99 {duration(gaps['p99'])}, max {duration(gaps['max'])}"
    rows.append(("gaps", f"CV {significant(summary['gap_cv'])}, {longest}"))
    rows += [(f"in {duration(each['window_s'])}", _counted(each)) for each in summary["windows"]]
    return rows


def _counted(window: Mapping[str, float]) -> str:
    peak = f"peak {significant(window['peak_to_mean'])} times the mean"
    return f"index of dispersion {significant(window['dispersion'])} (Poisson: 1), {peak}"


def _prompts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    reuse, sessions, correlation = summary["prefix_reuse"], summary.get("sessions"), summary["length_correlation"]
    shared = ""
    if reuse["token_share"]:
        shared = f"{percent(reuse['token_share'])} of prompt tokens, in {percent(reuse['request_share'])} of requests"
    turns = sessions["turns"] if sessions else {}
    return [
        ("sessions", f"{sessions['count']:,}, {significant(turns['mean'])} turns on average" if sessions else ""),
        ("reuse", shared or "none: no prompt begins like an earlier one"),
        ("correlation", f"{correlation:.2f} between prompt and output lengths" if defined(correlation) else ""),
    ]


def length_rows(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A header, and quantiles of both lengths."""
    rows = [
        (name, *(significant(summary[key][figure]) for figure in LENGTHS))
        for name, key in (("prompts", "prompt_tokens"), ("outputs", "output_tokens"))
        if summary[key]
    ]
    return [("tokens", *LENGTHS), *rows]


def class_rows(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A header and a row per class; nothing without classes."""
    rows = [
        (
            name,
            count(one["requests"]),
            *(_shown(one[key]) for key in ("rate_per_s", "gap_cv")),
            *(_shown(one[key].get("mean")) for key in ("prompt_tokens", "output_tokens")),
            percent(one["prefix_reuse"]["token_share"] or 0.0),
        )
        for name, one in (summary["classes"] or {}).items()
    ]
    return [("class", "requests", "per s", "gap CV", "prompt", "output", "reuse"), *rows] if rows else []


def _shown(value: float | None) -> str:
    return significant(value) if defined(value) else "-"
