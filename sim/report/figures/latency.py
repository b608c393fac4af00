"""How latencies are distributed, against the SLO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from sim.report.figures import style
from sim.report.format import defined, duration, percent, significant, time_unit

if TYPE_CHECKING:
    import pandas as pd

Slo = Mapping[str, float | None]
METRICS = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))
MARKED = (50, 90, 99)
_MOST_POINTS = 1500
_FAR_AWAY = 10.0
"""An SLO this many times beyond the slowest request is named, not drawn."""


def latency_cdf(requests: pd.DataFrame, slo: Slo | None = None) -> style.Drawing:
    """TTFT, TPOT and E2E as cumulative shares of requests, with p50, p90, p99 and the SLO's limits.

    ``slo``: the summary's ``slo``, or any of ``ttft_s``, ``tpot_s``, ``e2e_s``.
    """
    figure = style.new_figure(10.5, 3.6)
    panels = figure.subplots(1, len(METRICS))
    for axes, (column, name) in zip(panels, METRICS, strict=True):
        draw_cdf(axes, values_of(requests, column), name, (slo or {}).get(column))
    panels[0].set_ylabel("share of requests (%)", fontsize=style.TEXT_SIZE)
    style.finding(figure, latency_finding(requests, slo))
    return figure


def values_of(requests: pd.DataFrame, column: str) -> np.ndarray:
    """The finite values of a column; none where the table has no such column."""
    if column not in requests.columns:
        return np.array([])
    values: np.ndarray = requests[column].to_numpy(dtype=float, na_value=np.nan)
    finite: np.ndarray = values[np.isfinite(values)]
    return finite


def latency_finding(requests: pd.DataFrame, slo: Slo | None) -> str:
    """TTFT p99 and how it stands to the SLO, or the metric that misses its limit by most."""
    found = []
    for column, name in METRICS:
        values, limit_s = values_of(requests, column), (slo or {}).get(column)
        if len(values):
            p99_s = float(np.percentile(values, 99))
            found.append((p99_s / limit_s if defined(limit_s) and limit_s > 0 else -1.0, name, p99_s))
    if not found:
        return "No request got a token"
    ratio, name, p99_s = max(found, key=lambda item: item[0])
    text = f"{name} p99 {duration(p99_s)}"
    if ratio < 0:
        return text
    if ratio > 2:
        return f"{text}, {significant(ratio)} times the SLO"
    if ratio > 1:
        return f"{text}, {percent(ratio - 1)} above the SLO"
    return f"{text}, {percent(1 - ratio)} below the SLO"


def draw_cdf(axes: Axes, values_s: np.ndarray, name: str, limit_s: float | None = None) -> None:
    """One metric's cumulative distribution."""
    style.prepare(axes, title=name)
    if not len(values_s):
        axes.set_xlabel(f"{name} (s)", fontsize=style.TEXT_SIZE)
        style.nothing(axes, f"no {name}: undefined for every request")
        return
    values_s = np.sort(values_s)
    unit = time_unit(float(np.median(values_s)) or float(values_s[-1]))
    _curve(axes, values_s * unit.per_s)
    marks_s = np.percentile(values_s, MARKED)
    axes.scatter(marks_s * unit.per_s, MARKED, s=18, color=style.DECODE, zorder=3)
    lines_s = [limit_s] if defined(limit_s) and limit_s <= _FAR_AWAY * values_s[-1] else []
    limits_s = [float(values_s[0]), float(values_s[-1]), *lines_s]
    style.span(axes, min(limits_s) * unit.per_s, max(limits_s) * unit.per_s)
    for line_s in lines_s:
        axes.axvline(line_s * unit.per_s, color=style.SLO, linewidth=1.2, linestyle="--")
    axes.set_ylim(0, 103)
    style.number_ticks(axes.xaxis, 5)
    style.number_ticks(axes.yaxis, 6)
    axes.set_xlabel(f"{name} ({unit.name})", fontsize=style.TEXT_SIZE)
    _note(axes, name, values_s, marks_s, limit_s, drawn=bool(lines_s))


def _curve(axes: Axes, values: np.ndarray) -> None:
    shares = 100 * np.arange(1, len(values) + 1) / len(values)
    if len(values) > _MOST_POINTS:
        kept = np.unique(np.linspace(0, len(values) - 1, _MOST_POINTS).round().astype(int))
        values, shares = values[kept], shares[kept]
    axes.step(np.r_[values[0], values], np.r_[0.0, shares], where="post", color=style.DECODE, linewidth=1.6)


def _note(
    axes: Axes, name: str, values_s: np.ndarray, marks_s: np.ndarray, limit_s: float | None, *, drawn: bool
) -> None:
    """Percentiles and the SLO as a title: there they cover nothing."""
    text = ", ".join(f"p{mark} {duration(float(mark_s))}" for mark, mark_s in zip(MARKED, marks_s, strict=True))
    if defined(limit_s):
        dashed = " (dashed)" if drawn else ""
        text += f"\nSLO {duration(limit_s)}{dashed}, met by {percent(float(np.mean(values_s <= limit_s)))}"
    else:
        text += "\nno SLO"
    axes.set_title(f"{name}: {text}", loc="left", fontsize=style.TEXT_SIZE, color=style.INK)
