"""What the commands print for people. Works from 60 columns on; without a terminal there is no colour."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim.report.facts import (
    STATISTICS,
    Summary,
    assumptions,
    bounds,
    classes,
    headline,
    latencies,
    lines,
    slo_met,
    verdict,
)
from sim.report.format import percent

if TYPE_CHECKING:
    import pandas as pd

    from sim.bench import BenchResult

BOUND_STYLES = {
    "compute": "red",
    "memory": "blue",
    "communication": "magenta",
    "host": "yellow",
    "idle": "bright_black",
}
_LABEL_WIDTH = 11
NUMERIC = ("n", "MAPE", "median", "p90", "bias", "measured", "predicted", "error")
"""Columns that are aligned to the right."""


def make_console(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console that shows text as it is: no markup, no guessed colours, and no crash where a terminal lacks a sign."""
    stream = stream or sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and not (stream.encoding or "").lower().startswith("utf"):
        reconfigure(errors="replace")
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """The summary of a run, as ``sim run`` prints it."""
    console = console or make_console()
    console.print(Text(headline(summary), style="bold"))
    _print_verdict(summary, console)
    console.print()
    console.print(labelled(lines(summary), {"SLO": _slo_style(summary)}))
    console.print()
    console.print(_latency_table(summary))
    _print_classes(summary, console)
    _print_bounds(summary, console)
    _print_assumed(summary, console)


def _print_verdict(summary: Summary, console: Console) -> None:
    state, reason = verdict(summary)
    style = {"stable": "bold green", "overloaded": "bold red"}.get(state, "bold")
    console.print(Text.assemble((state, style), f": {reason}" if reason else ""))
    if summary.get("partial"):
        console.print(Text("interrupted: the figures cover what was simulated until then", style="yellow"))


def _slo_style(summary: Summary) -> str:
    return {True: "green", False: "red", None: ""}[slo_met(summary)]


def labelled(rows: Iterable[tuple[str, str]], styles: Mapping[str, str] | None = None) -> Table:
    """Two columns, label and value; long values wrap beneath themselves."""
    rows = list(rows)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=_LABEL_WIDTH, max_width=24)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(Text(label), Text(value, style=(styles or {}).get(label, "")))
    return table


def _latency_table(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("latency", min_width=_LABEL_WIDTH - 1)
    for statistic in STATISTICS:
        table.add_column(statistic, justify="right", min_width=6)
    for row in latencies(summary):
        table.add_row(Text(f"{row.name} ({row.unit})"), *row.cells)
    return table


def _print_classes(summary: Summary, console: Console) -> None:
    rows = classes(summary)
    if rows:
        console.print()
        console.print(table_of(rows))


def table_of(rows: Sequence[Sequence[str]]) -> Table:
    """A header and rows; the first column is to the left, the others to the right."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for index, name in enumerate(rows[0]):
        table.add_column(Text(name), justify="right" if index else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*(Text(cell) for cell in row))
    return table


def print_traffic(summary: Summary, console: Console | None = None) -> None:
    """A load, as ``sim traffic`` prints it."""
    from sim.report.loads import class_rows, length_rows, load_rows

    console = console or make_console()
    console.print(labelled(load_rows(summary)))
    for rows in (length_rows(summary), class_rows(summary)):
        if rows:
            console.print()
            console.print(table_of(rows))


def _print_bounds(summary: Summary, console: Console) -> None:
    shares = bounds(summary)
    if not shares:
        return
    console.print()
    console.print(Text("what bounded the fleet's time", style="dim"))
    block = "█" if console.encoding.lower().startswith("utf") else "#"
    width = max(10, min(40, console.width - 28))
    table = Table.grid(padding=(0, 2))
    for name, share in shares:
        filled = round(share * width)
        bar = Text(block * filled, style=BOUND_STYLES[name])
        table.add_row(Text(name), Text(percent(share), justify="right"), bar)
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_assumed(summary: Summary, console: Console) -> None:
    taken = assumptions(summary)
    if not taken:
        return
    console.print()
    console.print(Text("assumed", style="bold"))
    for what, value, why in taken:
        text = Text.assemble(what, f": {value}" if value else "", (f" ({why})" if why else "", "dim"))
        console.print(Padding(text, (0, 0, 0, 2)))


def print_list(names: Sequence[str], console: Console | None = None) -> None:
    """Names side by side on a terminal, one a line in a pipe."""
    console = console or make_console()
    if not console.is_terminal or not names:
        for name in names:
            console.print(Text(name), soft_wrap=True)
        return
    columns = max(1, console.width // (max(len(name) for name in names) + 2))
    table = Table.grid(padding=(0, 2))
    rows = iter(names)
    while row := list(islice(rows, columns)):
        table.add_row(*(Text(name) for name in row))
    console.print(table)


def print_models(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """One model, as ``sim models NAME`` prints it."""
    from sim.report.cards import model_rows

    _print_card(summary, model_rows(summary), console)


def print_hardware(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """One device, as ``sim hardware NAME`` prints it."""
    from sim.report.cards import hardware_rows

    _print_card(summary, hardware_rows(summary), console)


def _print_card(summary: Mapping[str, Any], rows: list[tuple[str, str]], console: Console | None) -> None:
    console = console or make_console()
    console.print(Text(str(summary.get("name") or "unnamed"), style="bold"))
    console.print(labelled(rows))


def print_sweep(frame: pd.DataFrame, varied: Sequence[str] | None = None, console: Console | None = None) -> None:
    """A sweep's points: what varied, and the figures that fit the width; then why points could not run."""
    from sim.report.sweeps import failures, sweep_cells

    console = console or make_console()
    header, rows = sweep_cells(frame, varied, console.width)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(Text(name), justify="right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style="red" if cell == "overloaded" else "") for cell in row))
    console.print(table)
    for point, reason in failures(frame, varied):
        console.print(Text.assemble((point, "bold"), (f" cannot run: {reason}", "red")))


def print_validation(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Errors against measured cases, as ``sim validate`` prints them."""
    from sim.report.validation import skipped_rows, tables

    console = console or make_console()
    for title, header, rows in tables(found):
        console.print(Text(title, style="bold"))
        _print_cells(header, rows, console)
        if title == "Set apart by rule":
            for group in found["apart"]["groups"]:
                console.print(Text(f"{group['name']} ({len(group['cases']):,} cases): {group['rule']}"))
        console.print()
    for count, reason in skipped_rows(found):
        console.print(Text(f"skipped {count:,}: {reason}"))


def print_replay(found: Mapping[str, Any], console: Console | None = None) -> None:
    """A replayed run beside the recorded one."""
    from sim.report.validation import replay_rows

    _print_cells(("", "", "measured", "predicted", "error"), replay_rows(found), console or make_console())


def _print_cells(header: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(Text(name), justify="right" if name in NUMERIC else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def print_results(runs: Sequence[tuple[str, BenchResult]], console: Console | None = None) -> None:
    """Runs out of load generators' result files, one a row, and what their reader had to say."""
    from sim.report.benches import COLUMNS, bench_cells, bench_notes

    console = console or make_console()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, name in enumerate(COLUMNS):
        table.add_column(Text(name), justify="left" if index < 2 else "right", overflow="fold")
    for row in bench_cells(runs):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for name, notices in bench_notes(runs):
        console.print(Text(name + notices))
