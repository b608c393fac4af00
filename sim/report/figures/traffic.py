"""A load before it is simulated: its rate over time, lengths, gaps and reuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from sim.report.figures import style
from sim.report.format import count, duration, percent, significant

if TYPE_CHECKING:
    from sim.results.loads import Description, Load, Values


def traffic_page(load: Load) -> style.Drawing:
    """Rate over time, lengths, gaps above which size, and what prompts repeat; a colour for each class."""
    figure = style.new_figure(10.5, 6.4)
    (rate, gaps), (lengths, reuse) = figure.subplots(2, 2)
    each = load.classes or {"all": load.everything}
    timed = load.timed and load.everything.last_s > load.everything.first_s
    _rate(rate, load, each, timed=timed)
    _gaps(gaps, load.everything, timed=timed)
    _lengths(lengths, load.everything)
    _reuse(reuse, each)
    style.finding(figure, _found(load, timed=timed))
    return figure


def _found(load: Load, *, timed: bool) -> str:
    every = load.everything
    text = f"{count(every.requests)} requests"
    if timed:
        span_s = every.last_s - every.first_s
        text += f" over {duration(span_s)}, {significant(every.gaps.count / span_s)} a second"
        text += f", gaps of CV {significant(every.gaps.cv)}"
    return text + f"; prompts of {significant(every.prompt.mean)}, answers of {significant(every.output.mean)} tokens"


def _rate(axes: Axes, load: Load, each: dict[str, Description], *, timed: bool) -> None:
    style.prepare(axes, "time (s)", "requests per second", "rate over time")
    if not timed:
        style.nothing(axes, "no rate: clients send when answers come, or all at once")
        return
    for (name, one), colour in zip(each.items(), _colours(len(each)), strict=True):
        if not one.requests:
            continue
        width_s, rates = one.rates.binned(load.everything.last_s)
        edges_s = width_s * np.arange(len(rates) + 1)
        axes.stairs(rates, edges_s, color=colour, linewidth=1.4, label=style.plain(name))
    axes.set_xlim(0, load.everything.last_s)
    style.from_zero(axes)
    style.number_ticks(axes.xaxis)
    style.number_ticks(axes.yaxis)
    if load.classes:
        style.legend(axes)


def _gaps(axes: Axes, every: Description, *, timed: bool) -> None:
    style.prepare(axes, "gap between arrivals (s)", "share of gaps above (%)", "gaps")
    values, shares = every.gaps.curve()
    above = 1 - np.concatenate(([0.0], shares[:-1])) if len(shares) else shares
    shown = values > 0
    if not timed or not shown.any():
        style.nothing(axes, "no gaps")
        return
    axes.plot(values[shown], 100 * above[shown], color=style.SERIES[0], linewidth=1.5, label="this load")
    mean_s = every.gaps.mean
    low, high = max(values[shown][0], mean_s / 1e3), values[-1]
    grid = np.geomspace(low, max(high, 2 * low), 200)
    axes.plot(grid, 100 * np.exp(-grid / mean_s), color=style.QUIET, linewidth=1, linestyle="--", label="Poisson")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, max(high, 2 * low) * 1.1)
    axes.set_ylim(100 * max(1 / every.gaps.count, 1e-6), 130)
    style.number_ticks(axes.xaxis)
    style.number_ticks(axes.yaxis)
    style.legend(axes, loc="lower left")


def _lengths(axes: Axes, every: Description) -> None:
    style.prepare(axes, "tokens", "share of requests (%)", "lengths")
    ends = []
    for name, values, colour in (("prompts", every.prompt, style.PREFILL), ("answers", every.output, style.DECODE)):
        at, shares = values.curve()
        if len(at):
            ends += [max(1.0, at[0]), at[-1]]
            at, shares = np.r_[at[0], at], np.r_[0.0, shares]
            axes.step(at, 100 * shares, where="post", color=colour, linewidth=1.6, label=_labelled(name, values))
    if ends:
        style.span(axes, min(ends), max(ends))
    axes.set_ylim(0, 103)
    style.number_ticks(axes.xaxis)
    style.number_ticks(axes.yaxis)
    style.legend(axes)


def _labelled(name: str, values: Values) -> str:
    figures = values.figures()
    return f"{name}: p50 {significant(figures['p50'])}, p99 {significant(figures['p99'])}"


def _reuse(axes: Axes, each: dict[str, Description]) -> None:
    style.prepare(axes, "prompt tokens that an earlier prompt began with (%)", "", "prefix reuse, infinite cache")
    shares = [100 * one.reused_tokens / one.prompt.total if one.prompt.total else 0.0 for one in each.values()]
    if not any(shares):
        style.nothing(axes, "no prompt begins like an earlier one")
        return
    places = np.arange(len(shares))
    axes.barh(places, shares, color=_colours(len(each)), height=0.6)
    axes.set_yticks(places, [style.plain(name) for name in each])
    axes.invert_yaxis()
    axes.set_xlim(0, 115)
    axes.set_ylim(len(shares) - 0.3, -0.7)
    for place, share in enumerate(shares):
        axes.text(share + 1, place, percent(share / 100), va="center", fontsize=style.TEXT_SIZE, color=style.INK)


def _colours(number: int) -> list[str]:
    return [style.SERIES[index % len(style.SERIES)] for index in range(number)]
