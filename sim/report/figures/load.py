"""Throughput against latency: over one run, or over a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from sim.report.figures import style
from sim.report.figures.series import StepSeries
from sim.report.format import duration, significant, time_unit
from sim.report.sweeps import point_name, points, varied_columns

if TYPE_CHECKING:
    import pandas as pd

_WINDOWS = 40
_LOADS = ("rate", "concurrency", "requests", "replicas")
_THROUGHPUT = "throughput.output_tokens_per_s"
_SWEPT = (("ttft_s.p50", "TTFT p50"), ("ttft_s.p99", "TTFT p99"), ("tpot_s.p50", "TPOT p50"))
_NAMED_LINES = 8


class Line(NamedTuple):
    """The points that differ by load alone, in its order."""

    label: str
    table: pd.DataFrame


def throughput_latency(
    table: pd.DataFrame, steps: pd.DataFrame | None = None, varied: Sequence[str] | None = None
) -> style.Drawing:
    """Latency over throughput.

    With ``steps``: ``table`` holds the requests of one run, and each point is a stretch of its time. Without: ``table``
    is a sweep's, each point is a run, and each line a setting (``varied``: the grid's paths, found if not given).
    """
    return _of_sweep(table, varied) if steps is None else _of_run(table, steps)


def _of_run(requests: pd.DataFrame, steps: pd.DataFrame) -> style.Drawing:
    figure = style.new_figure(9.5, 3.7)
    left, right = figure.subplots(1, 2)
    series = StepSeries.of(steps, _WINDOWS)
    tokens_per_s = series.rate(series.column("output_tokens")) if len(steps) else np.zeros(_WINDOWS)
    ttft_s = _window_medians(requests, series.edges_s)
    gap_s = _token_gaps(series)
    _scatter(left, tokens_per_s, ttft_s, "median TTFT", series.middles_s)
    mappable = _scatter(right, tokens_per_s, gap_s, "time per decode step", series.middles_s)
    if mappable is not None:
        bar = figure.colorbar(mappable, ax=right, pad=0.02)
        bar.set_label("simulated time (s)", fontsize=style.TEXT_SIZE)
        bar.ax.tick_params(labelsize=style.TEXT_SIZE - 0.5, colors=style.QUIET)
        bar.outline.set_visible(False)
    style.finding(figure, _run_finding(tokens_per_s, gap_s))
    return figure


def _run_finding(tokens_per_s: np.ndarray, gap_s: np.ndarray) -> str:
    if not np.isfinite(gap_s).any():
        return "No token was decoded"
    best = int(tokens_per_s.argmax())
    return f"Up to {significant(float(tokens_per_s[best]))} tokens/s decoded, at {duration(float(gap_s[best]))} a step"


def _window_medians(requests: pd.DataFrame, edges_s: np.ndarray) -> np.ndarray:
    """Median TTFT of the requests whose first token falls into each window; NaN where there is none."""
    medians = np.full(len(edges_s) - 1, np.nan)
    if requests.empty:
        return medians
    table = requests[["first_token_s", "ttft_s"]].dropna()
    window = np.searchsorted(edges_s, table["first_token_s"].to_numpy(), side="right") - 1
    for index, values in table["ttft_s"].groupby(np.clip(window, 0, len(medians) - 1)):
        medians[int(str(index))] = values.median()
    return medians


def _token_gaps(series: StepSeries) -> np.ndarray:
    """Mean duration of the steps that decode, weighted by their decodes."""
    if series.steps.empty:
        return np.full(_WINDOWS, np.nan)
    decodes = series.column("decode_sequences")
    tokens, seconds = series.rate(decodes), series.level(decodes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tokens > 0, seconds / tokens, np.nan)


def _scatter(axes: Axes, x: np.ndarray, y_s: np.ndarray, name: str, when_s: np.ndarray) -> PathCollection | None:
    kept = np.isfinite(y_s)
    if not kept.any():
        style.prepare(axes, "decode tokens/s", f"{name} (s)")
        style.nothing(axes, "no data")
        return None
    unit = time_unit(float(np.median(y_s[kept])) or float(y_s[kept].max()))
    style.prepare(axes, "decode tokens/s", f"{name} ({unit.name})")
    y = y_s[kept] * unit.per_s
    drawn = axes.scatter(x[kept], y, c=when_s[kept], cmap="viridis", s=24, linewidths=0)
    _vertical(axes, y)
    axes.set_xlim(left=0)
    style.number_ticks(axes.xaxis, 5)
    return drawn


def _vertical(axes: Axes, values: np.ndarray) -> None:
    positive = values[values > 0]
    if len(positive) and positive.max() / positive.min() > style.LOG_RANGE:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * float(values.max()) or 1.0)
    style.number_ticks(axes.yaxis, 5)


def _of_sweep(frame: pd.DataFrame, varied: Sequence[str] | None) -> style.Drawing:
    figure = style.new_figure(10.5, 3.9)
    lines = sweep_lines(frame, varied)
    panels = figure.subplots(1, len(_SWEPT))
    for axes, (column, name) in zip(panels, _SWEPT, strict=True):
        _sweep_panel(axes, lines, column, name)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(lines) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=style.TEXT_SIZE, frameon=False)
    style.finding(figure, _sweep_finding(lines))
    return figure


def _sweep_finding(lines: list[Line]) -> str:
    best = [(float(line.table[_THROUGHPUT].max()), line) for line in lines]
    if not best:
        return "No point of the sweep has a throughput"
    tokens_per_s, line = max(best, key=lambda item: item[0])
    row = line.table.iloc[int(line.table[_THROUGHPUT].to_numpy(dtype=float).argmax())]
    where = f" with {line.label}" if line.label else ""
    p99_s = row.get("ttft_s.p99")
    return f"Most throughput{where}: {significant(tokens_per_s)} output tokens/s, at TTFT p99 {duration(p99_s)}"


def sweep_lines(frame: pd.DataFrame, varied: Sequence[str] | None = None) -> list[Line]:
    """The sweep's points as lines along the load; whatever else varies tells the lines apart."""
    if frame.empty or _THROUGHPUT not in frame.columns:
        return []
    paths = varied_columns(frame, varied)
    table = points(frame, paths).dropna(subset=[_THROUGHPUT])
    load = _load_column(table, paths)
    others = [path for path in paths if path != load]
    order = load or _THROUGHPUT
    if not others or table.empty:
        return [Line("", table.sort_values(order))] if len(table) else []
    groups = table.groupby([table[path].map(str) for path in others], sort=False)
    return [Line(point_name(group.iloc[0], others), group.sort_values(order)) for _, group in groups]


def _load_column(table: pd.DataFrame, paths: Sequence[str]) -> str | None:
    numeric = [path for path in paths if table[path].dtype.kind in "iuf"]
    for ending in _LOADS:
        for path in numeric:
            if path.endswith(ending):
                return path
    return max(numeric, key=lambda path: table[path].nunique(), default=None)


def _sweep_panel(axes: Axes, lines: list[Line], column: str, name: str) -> None:
    drawn = [line for line in lines if column in line.table.columns and line.table[column].notna().any()]
    if not drawn:
        style.prepare(axes, "output tokens/s", f"{name} (s)")
        style.nothing(axes, f"no {name}")
        return
    values_s = np.concatenate([line.table[column].dropna().to_numpy(dtype=float) for line in drawn])
    unit = time_unit(float(np.median(values_s)) or float(values_s.max()))
    style.prepare(axes, "output tokens/s", f"{name} ({unit.name})")
    for index, line in enumerate(drawn):
        label = style.plain(line.label) if index < _NAMED_LINES else f"_{index}"
        colour = style.SERIES[index % len(style.SERIES)]
        values = line.table[column].to_numpy(dtype=float) * unit.per_s
        axes.plot(line.table[_THROUGHPUT], values, marker="o", markersize=3.5, color=colour, linewidth=1.4, label=label)
    _vertical(axes, values_s * unit.per_s)
    axes.set_xlim(left=0)
    style.number_ticks(axes.xaxis, 4)
