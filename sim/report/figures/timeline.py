"""A run over time: requests, KV cache, tokens per second, first-token latency, and what bounded the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from sim.report.facts import BOUNDS
from sim.report.figures import style
from sim.report.figures.series import StepSeries
from sim.report.format import count, defined, percent, time_unit

if TYPE_CHECKING:
    import pandas as pd

_BINS = 400
_MOST_DOTS = 1500
_HEIGHTS = (1.0, 0.7, 0.7, 0.7, 1.0, 0.6)


def timeline(steps: pd.DataFrame, requests: pd.DataFrame, kv_blocks: int | None = None) -> style.Drawing:
    """Six panels over simulated time, summed over replicas.

    ``kv_blocks``: the KV capacity of one replica in blocks; without it the blocks in use are drawn.
    """
    figure = style.new_figure(10.5, 8.8)
    panels = figure.subplots(len(_HEIGHTS), 1, sharex=True, height_ratios=_HEIGHTS)
    series = StepSeries.of(steps, _BINS, _last_event_s(requests))
    unit = time_unit(float(series.edges_s[-1]))
    x = series.middles_s * unit.per_s
    draw_requests(panels[0], series, x)
    _kv(panels[1], series, x, kv_blocks)
    draw_tokens(panels[2], series, x, "output_tokens", "output")
    draw_tokens(panels[3], series, x, "prefill_tokens", "prefill")
    _first_tokens(panels[4], requests, unit.per_s)
    _bounds(panels[5], series, x)
    panels[5].set_xlim(0, series.edges_s[-1] * unit.per_s)
    style.number_ticks(panels[5].xaxis, 9)
    panels[5].set_xlabel(f"simulated time ({unit.name})", fontsize=style.TEXT_SIZE)
    for axes in panels:
        if len(axes.get_yticks()):
            style.number_ticks(axes.yaxis, 3)
    figure.align_ylabels(panels)
    style.finding(figure, timeline_finding(steps, kv_blocks))
    return figure


def timeline_finding(steps: pd.DataFrame, kv_blocks: int | None) -> str:
    """The fullest the run got."""
    if steps.empty:
        return "No step was taken"
    waiting, running = int(steps["waiting"].max()), int(steps["running"].max())
    text = f"At most {count(running)} requests running and {count(waiting)} waiting on a replica"
    if kv_blocks:
        text += f", KV cache {percent(float(steps['kv_blocks_used'].max()) / kv_blocks)} full at its peak"
    return text


def _last_event_s(requests: pd.DataFrame) -> float:
    ends = [requests[name].max() for name in ("arrival_s", "finish_s") if name in requests.columns and len(requests)]
    return max((float(end) for end in ends if defined(end)), default=0.0)


def draw_requests(axes: Axes, series: StepSeries, x: np.ndarray) -> None:
    """Requests running and waiting."""
    style.prepare(axes, y_label="requests")
    axes.fill_between(x, series.level(series.column("running")), color=style.DECODE, alpha=0.15, linewidth=0)
    axes.plot(x, series.level(series.column("running")), color=style.DECODE, linewidth=1.3, label="running")
    axes.plot(x, series.level(series.column("waiting")), color="#D55E00", linewidth=1.3, label="waiting")
    style.from_zero(axes)
    _beside(axes)


def draw_tokens(axes: Axes, series: StepSeries, x: np.ndarray, column: str, name: str) -> None:
    """Tokens per second of prefill or of output; on one axis the former would flatten the latter."""
    style.prepare(axes, y_label="tokens/s")
    colour = style.PREFILL if name == "prefill" else style.DECODE
    axes.plot(x, series.rate(series.column(column)), color=colour, linewidth=1.2, label=name)
    style.from_zero(axes)
    _beside(axes)


def _kv(axes: Axes, series: StepSeries, x: np.ndarray, kv_blocks: int | None) -> None:
    used = series.level(series.column("kv_blocks_used"))
    if kv_blocks:
        replicas = max(1, series.steps["replica"].nunique())
        style.prepare(axes, y_label="KV in use (%)")
        axes.plot(x, 100 * used / (kv_blocks * replicas), color="#009E73", linewidth=1.3, label="KV cache")
        axes.set_ylim(0, 104)
    else:
        style.prepare(axes, y_label="KV blocks")
        axes.plot(x, used, color="#009E73", linewidth=1.3, label="KV cache")
        style.from_zero(axes)
    _beside(axes)


def _first_tokens(axes: Axes, requests: pd.DataFrame, per_s: float) -> None:
    """TTFT of each request at the time it was sent; what was turned away is marked below."""
    style.prepare(axes, y_label="TTFT")
    table = requests[["arrival_s", "ttft_s"]].dropna() if len(requests) else requests
    if table.empty:
        style.nothing(axes, "no request got a token")
        return
    unit = time_unit(float(table["ttft_s"].median()) or float(table["ttft_s"].max()))
    shown = table.iloc[np.unique(np.linspace(0, len(table) - 1, min(len(table), _MOST_DOTS)).astype(int))]
    axes.scatter(
        shown["arrival_s"] * per_s,
        shown["ttft_s"] * unit.per_s,
        s=5,
        color=style.DECODE,
        alpha=0.5,
        linewidths=0,
        label="by time sent",
    )
    lost = requests.loc[requests["status"].isin(("rejected", "failed")), "arrival_s"].to_numpy(dtype=float)
    if len(lost):
        lost = lost[np.linspace(0, len(lost) - 1, min(len(lost), _MOST_DOTS)).astype(int)]
        axes.scatter(lost * per_s, np.zeros(len(lost)), marker="x", s=14, color=style.SLO, label="turned away")
    style.from_zero(axes)
    if len(lost):
        axes.set_ylim(bottom=-0.06 * axes.get_ylim()[1])
    axes.set_ylabel(f"TTFT ({unit.name})", fontsize=style.TEXT_SIZE)
    _beside(axes)


def _bounds(axes: Axes, series: StepSeries, x: np.ndarray) -> None:
    """Share of the replicas' time by what bounds the step; the rest is idle."""
    style.prepare(axes, y_label="bound (%)")
    replicas = max(1, series.steps["replica"].nunique()) if len(series.steps) else 1
    names = [name for name in BOUNDS if name != "idle"]
    shares = [100 * series.bound(name) / replicas for name in names]
    idle = np.maximum(0.0, 100 - np.sum(shares, axis=0))
    drawn = [(name, share) for name, share in zip([*names, "idle"], [*shares, idle], strict=True) if share.max() > 0.1]
    axes.stackplot(x, [share for _, share in drawn], colors=[style.BOUND[name] for name, _ in drawn], linewidth=0)
    for name, _ in drawn:
        axes.fill_between([], [], color=style.BOUND[name], label=name)
    axes.set_ylim(0, 100)
    axes.grid(visible=False)
    _beside(axes)


def _beside(axes: Axes) -> None:
    style.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)
