"""Predicted against measured: one point per case, on a line where both are equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.report.figures import style
from sim.report.format import percent

Point = tuple[str, float, float]
"""Group, measured, predicted."""
BANDS = (0.3, 0.1)
"""Relative errors that are shaded."""


def parity(metric: str, points: Sequence[Point]) -> style.Drawing:
    """Predicted over measured on logarithmic axes, a colour per group; bands of 10 and 30 %."""
    measured, predicted = (np.array([point[index] for point in points]) for index in (1, 2))
    errors = np.abs(predicted / measured - 1)
    figure = style.new_figure(6.2, 5.6)
    axes = figure.add_subplot()
    style.prepare(axes, f"measured {_label(metric)}", f"predicted {_label(metric)}")
    low, high = min(measured.min(), predicted.min()) / 1.3, max(measured.max(), predicted.max()) * 1.3
    line = np.array([low, high])
    for band, shade in zip(BANDS, ("#F2F2F2", "#E2E2E2"), strict=True):
        label = f"within {percent(band)}"
        axes.fill_between(line, line * (1 - band), line * (1 + band), color=shade, linewidth=0, label=label)
    axes.plot(line, line, color=style.QUIET, linewidth=0.8)
    for index, group in enumerate(sorted({point[0] for point in points})):
        chosen = np.array([point[0] == group for point in points])
        colour = style.SERIES[index % len(style.SERIES)]
        text = style.plain(f"{group} ({int(chosen.sum())})")
        axes.scatter(measured[chosen], predicted[chosen], s=9, color=colour, alpha=0.6, linewidths=0, label=text)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    for axis in (axes.xaxis, axes.yaxis):
        style.number_ticks(axis)
    style.legend(axes, loc="upper left")
    typical, share = percent(float(np.median(errors))), percent(float((errors <= 0.3).mean()))
    style.finding(
        figure, f"{metric}: {typical} off in the median of {len(points):,} cases, {share} of them within 30 %"
    )
    return figure


def _label(metric: str) -> str:
    return f"{metric} (tokens/s)" if metric.endswith("per_s") else f"{metric} (s)"
