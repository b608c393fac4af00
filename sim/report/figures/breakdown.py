"""Where time went: a request's, and the fleet's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from sim.report.facts import Summary, bounds, main_bound
from sim.report.figures import style
from sim.report.format import duration, percent, significant, time_unit

if TYPE_CHECKING:
    import pandas as pd

TTFT_PARTS = (
    ("dispatch_s", "dispatch", "#7F7F7F"),
    ("queue_s", "queue", "#D55E00"),
    ("prefill_s", "prefill", style.PREFILL),
    ("prefill_stall_s", "prefill stalled", "#CC79A7"),
    ("return_s", "return", "#999999"),
)
TOKEN_PARTS = (
    ("decode_s", "decode", style.DECODE),
    ("decode_interference_s", "steps shared with prefill", "#56B4E9"),
    ("decode_stall_s", "preempted or starved", "#CC79A7"),
)
Part = tuple[str, str, str]
"""Column, name, colour."""
_DARK = (style.DECODE, "#7F7F7F", "#D55E00")


def latency_breakdown(requests: pd.DataFrame) -> style.Drawing:
    """What TTFT and the time per token are made of: over all requests, and over those around the 99th percentile."""
    figure = style.new_figure(10.5, 3.3)
    left, right = figure.subplots(1, 2)
    ttft = draw_parts(left, requests, "ttft_s", ttft_parts(requests), "TTFT")
    token = draw_parts(right, requests, "tpot_s", TOKEN_PARTS, "time per output token")
    style.finding(figure, _breakdown_finding(ttft, token))
    return figure


def ttft_parts(requests: pd.DataFrame) -> Sequence[Part]:
    """What TTFT is made of; the way back only where it takes time."""
    returns = "return_s" in requests and bool(requests["return_s"].any())
    return TTFT_PARTS if returns else TTFT_PARTS[:-1]


def _breakdown_finding(ttft: tuple[str, float] | None, token: tuple[str, float] | None) -> str:
    parts = []
    if ttft:
        parts.append(f"{ttft[0]} is {percent(ttft[1])} of TTFT")
    if token:
        parts.append(f"{token[0]} {percent(token[1])} of the time per token")
    text = ", ".join(parts) or "no request got a token"
    return text[0].upper() + text[1:]


def draw_parts(
    axes: Axes, requests: pd.DataFrame, total: str, parts: Sequence[Part], name: str
) -> tuple[str, float] | None:
    """Stacked bars of the mean and around p99; returns the largest part of the mean with its share."""
    style.prepare(axes, title=f"{name}, mean parts")
    rows = mean_parts(requests, total, [column for column, _, _ in parts])
    if rows is None:
        style.nothing(axes, f"no {name}: undefined for every request")
        return None
    unit = time_unit(float(rows.sum(axis=1).max()))
    longest = float(rows.sum(axis=1).max()) * unit.per_s or 1.0
    starts = np.zeros(2)
    for (_, label, colour), widths_s in zip(parts, rows.T, strict=True):
        widths = widths_s * unit.per_s
        axes.barh([1, 0], widths, left=starts, color=colour, label=label, height=0.58)
        _inside(axes, starts, widths, longest, "white" if colour in _DARK else style.INK)
        starts = starts + widths
    for y, end in zip((1, 0), starts, strict=True):
        text = duration(end / unit.per_s)
        axes.text(end + 0.015 * longest, y, text, va="center", fontsize=style.TEXT_SIZE, fontweight="bold")
    axes.set_yticks([1, 0], ["all", "around p99"])
    axes.set_xlim(0, 1.22 * longest)
    axes.set_ylim(-0.5, 1.5)
    axes.grid(visible=False, axis="y")
    style.number_ticks(axes.xaxis, 5)
    axes.set_xlabel(f"{name} ({unit.name})", fontsize=style.TEXT_SIZE)
    style.legend(axes, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=len(parts), columnspacing=1.2)
    mean = rows[0]
    largest = int(mean.argmax())
    return (parts[largest][1], float(mean[largest] / mean.sum())) if mean.sum() > 0 else None


def mean_parts(requests: pd.DataFrame, total: str, columns: Sequence[str]) -> np.ndarray | None:
    """Mean seconds of each part, over all requests and over those between p98.5 and p99.5 of ``total``.

    Parts of ``tpot_s`` are divided by the request's gaps. None where no request has a total.
    """
    if requests.empty or any(column not in requests.columns for column in (total, *columns)):
        return None
    totals = requests[total].to_numpy(dtype=float, na_value=np.nan)
    parts = requests[list(columns)].to_numpy(dtype=float, na_value=np.nan)
    kept = np.isfinite(totals)
    if not kept.any():
        return None
    totals, parts = totals[kept], np.maximum(np.nan_to_num(parts[kept]), 0.0)
    if total == "tpot_s":
        parts = parts / (requests["output_tokens"].to_numpy(dtype=float)[kept, None] - 1)
    order = np.argsort(totals, kind="stable")
    low, high = np.floor(np.array((0.985, 0.995)) * (len(order) - 1)).astype(int)
    return np.array([parts.mean(axis=0), parts[order[low : high + 1]].mean(axis=0)])


def _inside(axes: Axes, starts: np.ndarray, widths: np.ndarray, longest: float, colour: str) -> None:
    for y, start, width in zip((1, 0), starts, widths, strict=True):
        if width > 0.09 * longest:
            text = significant(width)
            axes.text(start + width / 2, y, text, ha="center", va="center", fontsize=style.TEXT_SIZE, color=colour)


def bound_shares(summary: Summary) -> style.Drawing:
    """What bounded the fleet's time, as one bar."""
    figure = style.new_figure(10.5, 1.7)
    draw_bounds(figure.subplots(), summary)
    style.finding(figure, bound_finding(summary))
    return figure


def bound_finding(summary: Summary) -> str:
    """The largest bound while busy, and how long the fleet was idle."""
    largest = main_bound(summary)
    if largest is None:
        return "The fleet was idle throughout"
    idle = dict(bounds(summary)).get("idle", 0.0)
    rest = f"; idle {percent(idle)} of the time" if idle > 0 else ""
    return f"{largest[0].capitalize()} bounds {percent(largest[1])} of busy time{rest}"


def draw_bounds(axes: Axes, summary: Summary) -> None:
    """Shares of the fleet's time side by side; they sum to 100 %."""
    style.prepare(axes, "share of the fleet's time (%)")
    start = 0.0
    for name, share in bounds(summary):
        width = 100 * share
        axes.barh(0, width, left=start, color=style.BOUND[name], label=f"{name} {percent(share)}", height=0.6)
        if width > 7:
            colour = "white" if name in ("compute", "memory") else style.INK
            text = f"{name}\n{percent(share)}" if width > 13 else percent(share)
            axes.text(start + width / 2, 0, text, ha="center", va="center", fontsize=style.TEXT_SIZE, color=colour)
        start += width
    axes.set_xlim(0, 100)
    axes.set_ylim(-0.35, 0.35)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    style.legend(axes, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, borderaxespad=0.1, borderpad=0.0)
