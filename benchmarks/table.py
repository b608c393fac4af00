"""How the figures are printed: lines as they come, and the README's table."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MARKS = ("<!-- figures: written by run.py --markdown -->", "<!-- end of figures -->")
SUPER_LINEAR = 1.25
"""Growth from here on is called so; machines drift by less."""

COLUMNS = {
    "load": "load",
    "requests": "requests",
    "requests_per_cpu_s": "requests per CPU s",
    "output_tokens_per_cpu_s": "output tokens per CPU s",
    "us_per_request": "us per request",
    "growth": "growth",
    "prototype_us_per_request": "prototype's us",
    "times_prototype": "times prototype",
    "peak_mb": "peak MB",
    "preempted_share": "preempted",
}


def context(command: str, repeat: int) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "best of": repeat,
    }


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    cells = _cells(row)
    named = [f"{COLUMNS[name]} {cells[name]}" for name in COLUMNS if name not in {"load", "requests"} and cells[name]]
    unstable = "" if row["verdict"] == "stable" else f"; {row['verdict']}"
    return f"{cells['load']:8} {cells['requests']:>9} requests: {', '.join(named)}{unstable}"


def markdown(about: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The table, under what the figures depend on."""
    head = f"{about['machine']}; {about['python']}; {about['date']}; best of {about['best of']}:\n`{about['command']}`"
    table = [list(COLUMNS.values()), ["---", *["---:"] * (len(COLUMNS) - 1)]]
    table += [list(_cells(row).values()) for row in rows]
    return head + "\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def replace_figures(path: Path, figures: str) -> None:
    """Put new figures where a file has the old ones. Raises ValueError where it has no place for them."""
    text, (start, end) = path.read_text(encoding="utf-8"), MARKS
    if start not in text or end not in text:
        raise ValueError(f"{path} has no lines {start!r} and {end!r} to put the figures between")
    before, after = text.split(start)[0], text.split(end)[1]
    path.write_text(f"{before}{start}\n\n{figures}\n\n{end}{after}", encoding="utf-8")


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Every column's text; nothing where there is no figure."""
    formats = {"us_per_request": ".1f", "prototype_us_per_request": ".1f", "times_prototype": ".2f", "growth": ".2f",
               "preempted_share": ".1%"}  # fmt: skip
    cells = {"load": row["load"]}
    for name in list(COLUMNS)[1:]:
        cells[name] = "" if row[name] is None else format(row[name], formats.get(name, ",.0f"))
    if row["growth"] is not None and row["growth"] > SUPER_LINEAR:
        cells["growth"] += " (super-linear)"
    return cells


def _processor() -> str:
    """The CPU's model."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
