"""Write the project's own table of measured cases from a larger one: the figures that are compared, and their source.

    python validation/collect.py MEASURED.csv validation/cases.csv

Columns without a value are left out, figures have five digits, and every row has its source in short.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from sim.study.validation.cases import COLUMNS, MEASURED, read_cases

LEFT_OUT = ("license", "n_gpus")
"""n_gpus is tp x pp x dp."""


def collect(source: Path, target: Path) -> None:
    """One row per case of ``source``, named by its set and number."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    read_cases(source)
    filled = {name for row in rows for name, cell in row.items() if cell}
    header = [name for name in (*COLUMNS, *MEASURED) if name in filled and name not in LEFT_OUT]
    counts: dict[str, int] = {}
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            counts[row["set"]] = counts.get(row["set"], 0) + 1
            row["case_id"] = f"{row['set']}-{counts[row['set']]:04d}"
            row["source"] = _short(row["source"])
            writer.writerow([_figure(row[name]) if name in MEASURED else _plain(row[name]) for name in header])


def _short(source: str) -> str:
    """Repository and commit."""
    parts = source.split()
    return f"{parts[0]} {parts[-1][:12]}"


def _figure(cell: str) -> str:
    return f"{float(cell):.5g}" if cell else ""


def _plain(cell: str) -> str:
    """Whole numbers without a point."""
    try:
        return f"{float(cell):.10g}" if cell and cell[-2:] == ".0" and cell.count(".") == 1 else cell
    except ValueError:
        return cell


if __name__ == "__main__":
    collect(Path(sys.argv[1]), Path(sys.argv[2]))
