"""The most telling figures of a run together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.report.facts import Summary, bounds, headline, verdict
from sim.report.figures import style
from sim.report.figures.breakdown import TOKEN_PARTS, draw_bounds, draw_parts, ttft_parts
from sim.report.figures.latency import draw_cdf, latency_finding, values_of
from sim.report.figures.series import StepSeries
from sim.report.figures.timeline import draw_requests, draw_tokens
from sim.report.format import time_unit

if TYPE_CHECKING:
    import pandas as pd

_BINS = 250


def overview(summary: Summary, requests: pd.DataFrame, steps: pd.DataFrame) -> style.Drawing:
    """Latencies against the SLO, what they are made of, load over time, and what bounds the fleet, on one page."""
    figure = style.new_figure(11, 9.2)
    grid = figure.add_gridspec(4, 2, height_ratios=(1.25, 0.85, 0.95, 0.28))
    slo = summary.get("slo") or {}
    for column, metric, name in ((0, "ttft_s", "TTFT"), (1, "tpot_s", "TPOT")):
        axes = figure.add_subplot(grid[0, column])
        draw_cdf(axes, values_of(requests, metric), name, slo.get(metric))
        axes.set_ylabel("share of requests (%)", fontsize=style.TEXT_SIZE)
    draw_parts(figure.add_subplot(grid[1, 0]), requests, "ttft_s", ttft_parts(requests), "TTFT")
    draw_parts(figure.add_subplot(grid[1, 1]), requests, "tpot_s", TOKEN_PARTS, "time per output token")
    series = StepSeries.of(steps, _BINS)
    unit = time_unit(float(series.edges_s[-1]))
    x = series.middles_s * unit.per_s
    left, right = (figure.add_subplot(grid[2, column]) for column in (0, 1))
    draw_requests(left, series, x)
    draw_tokens(right, series, x, "output_tokens", "output")
    for axes in (left, right):
        style.from_zero(axes, headroom=1.3)
        axes.set_xlabel(f"simulated time ({unit.name})", fontsize=style.TEXT_SIZE)
        axes.set_xlim(0, series.edges_s[-1] * unit.per_s)
        style.legend(axes, loc="upper left", ncols=2)
        style.number_ticks(axes.xaxis, 6)
        style.number_ticks(axes.yaxis, 4)
    if bounds(summary):
        draw_bounds(figure.add_subplot(grid[3, :]), summary)
    style.finding(figure, f"{headline(summary)}: {verdict(summary).state}. {latency_finding(requests, slo)}")
    return figure
