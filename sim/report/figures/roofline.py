"""Operators under the roof: what each attains, against what its arithmetic intensity allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple, Protocol

import numpy as np
from matplotlib.axes import Axes

from sim.report.figures import labels, style
from sim.report.format import bytes_per_s, flops_per_s, percent, significant


class Operator(Protocol):
    """What is drawn of one operator; ``flops``, ``hbm_bytes`` and ``seconds`` are of the same number of executions."""

    @property
    def name(self) -> str:
        """As the label reads."""

    @property
    def flops(self) -> float:
        """0 has no place in the figure."""

    @property
    def hbm_bytes(self) -> float:
        """0 has no place in the figure."""

    @property
    def seconds(self) -> float:
        """Time of those executions."""

    @property
    def dtype(self) -> str:
        """Of the peak it runs at."""


Phases = Mapping[str, Sequence[Operator]]
_MOST_LABELS = 24
_LARGEST_POINT, _SMALLEST_POINT = 420.0, 14.0
_MARKERS = {"prefill": ("s", style.PREFILL), "decode": ("o", style.DECODE)}
_OTHER_MARKERS = (("D", "#009E73"), ("^", "#CC79A7"), ("v", "#56B4E9"))


class Point(NamedTuple):
    """An operator's place: FLOP per byte, FLOP/s, its share of the time of its phase, and what bounds it."""

    name: str
    phase: str
    intensity: float
    flops_per_s: float
    share: float
    bound: str


def roofline(
    operators: Sequence[Operator] | Phases,
    *,
    peak_flops_per_s: float | Mapping[str, float],
    hbm_bytes_per_s: float,
) -> style.Drawing:
    """Attained FLOP/s over arithmetic intensity, both logarithmic; a point's area is its share of the time.

    ``operators``: of one step, or one list for each of ``prefill`` and ``decode``. ``peak_flops_per_s``: the roof, or
    one for each dtype. Operators without FLOPs or without HBM traffic have no place and are named below the axis.
    """
    figure = style.new_figure(9.5, 6.0)
    axes = figure.subplots()
    phases: Phases = operators if isinstance(operators, Mapping) else {"step": operators}
    peaks = peak_flops_per_s if isinstance(peak_flops_per_s, Mapping) else {"": peak_flops_per_s}
    placed, left_out = operator_points(phases, max(peaks.values()) / hbm_bytes_per_s)
    style.prepare(axes, _x_label(left_out), "attained (TFLOP/s)")
    _limits(axes, placed, peaks, hbm_bytes_per_s)
    _roof(axes, peaks, hbm_bytes_per_s)
    _scatter(axes, placed)
    style.finding(figure, _finding(placed))
    style.legend(axes, loc="lower right")
    labels.place(figure, axes, _labelled(placed), _roof_points(axes, peaks, hbm_bytes_per_s))
    return figure


def operator_points(phases: Phases, ridge: float) -> tuple[list[Point], list[tuple[str, float]]]:
    """Operators that have a place, and names and time shares of those that have none.

    An operator that does not say what bounds it is bound by memory left of the ridge.
    """
    placed, left_out = [], []
    for phase, operators in phases.items():
        total_s = sum(operator.seconds for operator in operators)
        for operator in operators:
            share = operator.seconds / total_s if total_s > 0 else 0.0
            if operator.flops > 0 and operator.hbm_bytes > 0 and operator.seconds > 0:
                intensity = operator.flops / operator.hbm_bytes
                bound = getattr(operator, "bound", None) or ("memory" if intensity < ridge else "compute")
                placed.append(Point(operator.name, phase, intensity, operator.flops / operator.seconds, share, bound))
            elif share > 0:
                left_out.append((f"{operator.name} ({phase})", share))
    return placed, left_out


def _x_label(left_out: list[tuple[str, float]]) -> str:
    text = "arithmetic intensity (FLOP per byte of HBM traffic)"
    if not left_out:
        return text
    named = [f"{style.plain(name)} {percent(share)}" for name, share in sorted(left_out, key=lambda item: -item[1])[:3]]
    more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"{text}\nnot drawn, share of the time: {', '.join(named)}{more}"


def _finding(placed: list[Point]) -> str:
    if not placed:
        return "No operator has both FLOPs and HBM traffic"
    parts = []
    for phase in dict.fromkeys(point.phase for point in placed):
        share = sum(point.share for point in placed if point.phase == phase and point.bound == "memory")
        parts.append(f"{percent(min(share, 1.0))} of {phase} time")
    return f"Memory bounds {' and '.join(parts)}"


def _limits(axes: Axes, placed: list[Point], peaks: Mapping[str, float], hbm_bytes_per_s: float) -> None:
    ridges = [peak / hbm_bytes_per_s for peak in peaks.values()]
    intensities = [*(point.intensity for point in placed), *ridges]
    rates = [*(point.flops_per_s for point in placed), *peaks.values()]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(intensities) / 4, max(intensities) * 8)
    axes.set_ylim(min(rates) / 1e12 / 4, max(rates) / 1e12 * 3)
    style.number_ticks(axes.xaxis, 8)
    style.number_ticks(axes.yaxis, 8)
    axes.set_autoscale_on(False)


def _roof(axes: Axes, peaks: Mapping[str, float], hbm_bytes_per_s: float) -> None:
    low, high = axes.get_xlim()
    for dtype, peak in sorted(peaks.items(), key=lambda item: item[1]):
        ridge = peak / hbm_bytes_per_s
        x = np.array([min(low, ridge), ridge, high])
        axes.plot(x, np.minimum(peak, x * hbm_bytes_per_s) / 1e12, color=style.INK, linewidth=1.4, zorder=2)
        axes.plot([ridge], [peak / 1e12], marker="o", markersize=4, color=style.INK, zorder=3)
        text = f"{style.plain(dtype)} {flops_per_s(peak)}".strip()
        axes.annotate(
            text, (high, peak / 1e12), (-4, 4), textcoords="offset points", ha="right", fontsize=style.TEXT_SIZE
        )
        axes.annotate(
            f"{significant(ridge)} FLOP/byte",
            (ridge, peak / 1e12),
            (0, 5),
            textcoords="offset points",
            ha="right",
            fontsize=style.TEXT_SIZE - 1,
            color=style.QUIET,
        )
    _slope_label(axes, low, hbm_bytes_per_s)


def _roof_points(axes: Axes, peaks: Mapping[str, float], hbm_bytes_per_s: float) -> np.ndarray:
    """Points along the roofs, (FLOP/byte, TFLOP/s), that labels keep clear of."""
    x = np.geomspace(*axes.get_xlim(), 150)
    roofs = [np.minimum(peak, x * hbm_bytes_per_s) / 1e12 for peak in peaks.values()]
    return np.concatenate([np.column_stack((x, roof)) for roof in roofs])


def _slope_label(axes: Axes, low: float, hbm_bytes_per_s: float) -> None:
    """The bandwidth, written along the roof's slope from the left edge of the axes."""
    bottom = axes.get_ylim()[0]
    x = max(low, bottom * 1e12 / hbm_bytes_per_s) * 1.25
    axes.text(
        x,
        x * hbm_bytes_per_s / 1e12 * 1.12,
        bytes_per_s(hbm_bytes_per_s),
        rotation=float(np.degrees(np.arctan(hbm_bytes_per_s / 1e12))),
        rotation_mode="anchor",
        transform_rotates_text=True,
        fontsize=style.TEXT_SIZE,
        color=style.INK,
    )


def _scatter(axes: Axes, placed: list[Point]) -> None:
    others = cycle(_OTHER_MARKERS)
    for phase in dict.fromkeys(point.phase for point in placed):
        marker, colour = _MARKERS.get(phase) or next(others)
        points = sorted((point for point in placed if point.phase == phase), key=lambda point: -point.share)
        axes.scatter(
            [point.intensity for point in points],
            [point.flops_per_s / 1e12 for point in points],
            s=[max(_SMALLEST_POINT, _LARGEST_POINT * point.share) for point in points],
            marker=marker,
            color=colour,
            alpha=0.75,
            edgecolors="white",
            linewidths=0.8,
            zorder=4,
        )
        axes.scatter([], [], marker=marker, s=45, color=colour, label=f"{style.plain(phase)} (area: share of its time)")


def _labelled(placed: list[Point]) -> list[labels.Label]:
    largest = sorted(placed, key=lambda point: -point.share)[:_MOST_LABELS]
    return [
        labels.Label(
            f"{style.plain(point.name, 28)} {percent(point.share)}",
            point.intensity,
            point.flops_per_s / 1e12,
            max(_SMALLEST_POINT, _LARGEST_POINT * point.share) ** 0.5 / 2,
        )
        for point in largest
    ]
