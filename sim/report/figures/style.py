"""One look for every figure: a palette safe for colour-blind eyes, quiet axes, titles that say the finding."""

from __future__ import annotations

import io
from functools import cache
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from sim.report.format import shortened, si, significant

INK, QUIET, GRID = "#222222", "#666666", "#E6E6E6"
PREFILL, DECODE = "#E69F00", "#0072B2"
SLO = "#B22222"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
BOUND = {
    "compute": "#D55E00",
    "memory": "#0072B2",
    "communication": "#CC79A7",
    "host": "#F0C75E",
    "idle": "#DDDDDD",
}
TEXT_SIZE, TITLE_SIZE = 8.5, 11
LOG_RANGE = 20.0
"""An axis whose figures span more than this factor is logarithmic."""


class Drawing(Figure):
    """A figure that shows itself in notebooks although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return png(self)


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def new_figure(width_in: float, height_in: float) -> Drawing:
    """An empty figure with an Agg canvas and a layout that keeps labels apart."""
    figure = Drawing(figsize=(width_in, height_in), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def finding(figure: Figure, text: str) -> None:
    """The figure's title: what it shows, wrapped to its width."""
    columns = int(figure.get_figwidth() * 11)
    lines = fill(plain(text, 4 * columns), columns)
    figure.suptitle(lines, x=0.01, ha="left", fontsize=TITLE_SIZE, fontweight="bold", color=INK)


def prepare(axes: Axes, x_label: str = "", y_label: str = "", title: str = "") -> None:
    """Labels, grid and ticks in the common look."""
    axes.set_xlabel(x_label, fontsize=TEXT_SIZE, color=INK)
    axes.set_ylabel(y_label, fontsize=TEXT_SIZE, color=INK)
    if title:
        axes.set_title(title, loc="left", fontsize=TEXT_SIZE + 0.5, color=INK)
    axes.tick_params(labelsize=TEXT_SIZE - 0.5, colors=QUIET, length=2.5)
    axes.grid(visible=True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#BBBBBB")


def number_ticks(axis: Any, most: int = 6) -> None:
    """Ticks as plain numbers, also on a logarithmic axis."""
    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        decades = np.log10(high / low)
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,), numticks=most + 3))
        axis.set_minor_formatter(NullFormatter())
        if decades > 6:
            axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    """Thousands in full, beyond with a prefix: 20,000 but 200k."""
    return significant(value, 4) if abs(value) < 99_999 else si(value, "").replace(" ", "")


def span(axes: Axes, low: float, high: float) -> None:
    """Limits of the x axis around figures from ``low`` to ``high``; logarithmic where they span decades."""
    if low > 0 and high / low > LOG_RANGE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.3, high * 1.3)
        return
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    start = low - margin
    axes.set_xlim(0.0 if low >= 0 > start else start, high + margin)


def from_zero(axes: Axes, headroom: float = 1.06) -> None:
    """A y axis that starts at 0 and has some height even where everything is 0."""
    top = float(axes.dataLim.ymax)
    axes.set_ylim(0, headroom * top if np.isfinite(top) and top > 0 else 1)


def nothing(axes: Axes, text: str) -> None:
    """An empty panel that says why it is empty."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=TEXT_SIZE, color=QUIET)


def legend(axes: Axes, **place: Any) -> None:
    """A legend without a frame."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, fontsize=TEXT_SIZE - 0.5, frameon=False, labelcolor=INK, **place)


def plain(text: str, limit: int = 40) -> str:
    """Text that the font can draw, at most ``limit`` characters; a dollar is a dollar and starts no formula."""
    known = _font_characters()
    drawable = "".join(character if ord(character) in known else "?" for character in text)
    return shortened(drawable, limit).replace("$", r"\$")


@cache
def _font_characters() -> frozenset[int]:
    path = font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans"))
    return frozenset(font_manager.get_font(path).get_charmap())
