"""Every case of a table simulated, and the errors told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sim import __version__, resources
from sim.results.files import prepared, write_text
from sim.study.grid import fingerprint
from sim.study.journal import Journal
from sim.study.pool import check_pool, run_calls
from sim.study.validation.cases import COLUMNS, METRICS, Case, chosen, read_cases
from sim.study.validation.errors import Compared, Errors, by_column, by_metric
from sim.study.validation.naming import Named, apart
from sim.study.validation.running import Row, run_case, run_cases

Progress = Callable[[int, int], None]
"""Called with (cases finished, cases in all)."""
PREDICTIONS = "predictions.csv"
CALL_CASES = 8
"""Cases that a process takes at a time."""


class Skipped(NamedTuple):
    """A case that could not run, and why."""

    case_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What a table of cases measured, and what was predicted of it."""

    compared: tuple[Compared, ...]
    skipped: tuple[Skipped, ...]
    apart: tuple[Named, ...]
    """Groups that a rule names: they count in ``metrics``, and not in ``rest``."""

    @property
    def metrics(self) -> dict[str, Errors]:
        """Errors of every metric over all cases that ran."""
        return by_metric(self.compared)

    @property
    def by(self) -> dict[str, dict[str, dict[str, Errors]]]:
        """The same by GPU, engine, model, load and set."""
        return by_column(self.compared)

    @property
    def rest(self) -> tuple[Compared, ...]:
        """Cases that no rule names."""
        named = {row.case.case_id for group in self.apart for row in group.rows}
        return tuple(row for row in self.compared if row.case.case_id not in named)

    def as_json(self) -> dict[str, Any]:
        """The object that ``sim validate --json`` prints; errors are fractions."""
        return {
            "metrics": self.metrics,
            "by": self.by,
            "skipped": [entry._asdict() for entry in self.skipped],
            "apart": {
                "groups": [
                    {
                        "name": group.name,
                        "rule": group.rule,
                        "cases": [row.case.case_id for row in group.rows],
                        "metrics": by_metric(group.rows),
                    }
                    for group in self.apart
                ],
                "metrics_without": by_metric(self.rest),
                "by_without": by_column(self.rest),
            },
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One flat row per case that ran: its columns, then measured and predicted of each metric."""
        names = {row.case.case_id: group.name for group in self.apart for row in group.rows}
        for row in self.compared:
            figures = {
                f"{kind}_{metric}": values.get(metric)
                for metric in METRICS
                if metric in row.case.measured
                for kind, values in (("measured", row.case.measured), ("predicted", row.predicted))
            }
            columns = {column: getattr(row.case, column) for column in COLUMNS}
            yield {**columns, "apart": names.get(row.case.case_id), **figures}


def validate(
    cases: str | Path,
    *,
    where: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    jobs: int = -1,
    progress: Progress | None = None,
) -> Validation:
    """Simulate every row of a CSV file of measured cases (``where`` columns have these values) and compare.

    With ``out`` the folder gets predictions.csv, report.md and plots, and finished cases are kept there until then: the
    same call goes on from them. ``jobs``: processes, -1 for one per core. Raises ScenarioError with file, line and
    column where the table cannot be read.
    """
    check_pool("loky", jobs)
    wanted = chosen(read_cases(Path(cases)), where or {})
    folder = None if out is None else Path(out)
    if folder is None:
        return compare(wanted, _run(wanted, {}, jobs, progress, None))
    with prepared(folder):
        journal = Journal(folder / PREDICTIONS, _fingerprint(wanted), resume=True)
        result = compare(wanted, _run(wanted, dict(journal.rows), jobs, progress, journal))
        write(result, folder)
        journal.close(remove=True)
    return result


def compare(cases: Sequence[Case], rows: Mapping[str, Row]) -> Validation:
    """Cases with what their runs gave, in the order of the table."""
    compared = tuple(Compared(case, row["predicted"]) for case in cases if "predicted" in (row := rows[case.case_id]))
    skipped = tuple(Skipped(case.case_id, row["reason"]) for case in cases if "reason" in (row := rows[case.case_id]))
    return Validation(compared=compared, skipped=skipped, apart=tuple(apart(compared)))


def write(result: Validation, folder: Path) -> list[Path]:
    """predictions.csv, report.md and the plots."""
    import pandas as pd

    from sim.report.figures.parity import parity
    from sim.report.figures.style import png
    from sim.report.validation import report_markdown

    predictions, report = folder / PREDICTIONS, folder / "report.md"
    write_text(predictions, pd.DataFrame(list(result.rows())).dropna(axis="columns", how="all").to_csv(index=False))
    written = [predictions]
    for metric in ("tpot_mean", "ttft_mean", "tpot_p50", "ttft_p50", "output_tokens_per_s"):
        points = [
            (row.case.engine, row.case.measured[metric], row.predicted[metric])
            for row in result.compared
            if metric in row.case.measured and metric in row.predicted
        ]
        if points:
            written.append(folder / f"{metric}.png")
            written[-1].write_bytes(png(parity(metric, points)))
    write_text(report, report_markdown(result.as_json()))
    return [*written, report]


def _run(
    cases: Sequence[Case], rows: dict[str, Row], jobs: int, progress: Progress | None, journal: Journal | None
) -> dict[str, Row]:
    todo = [case for case in cases if case.case_id not in rows]
    if progress is not None:
        progress(len(rows), len(cases))
    for case_id, row in _finished(todo, jobs):
        rows[case_id] = row
        if journal is not None:
            journal.add(case_id, row)
        if progress is not None:
            progress(len(rows), len(cases))
    return rows


def _finished(todo: Sequence[Case], jobs: int) -> Iterator[tuple[str, Row]]:
    """Cases as they finish. Neighbours of a table are alike, so its order is mixed: all processes end together."""
    if jobs == 1 or len(todo) <= CALL_CASES:
        yield from ((case.case_id, run_case(case)) for case in todo)
        return
    mixed = list(todo)
    random.Random(0).shuffle(mixed)
    calls = {str(start): (mixed[start : start + CALL_CASES],) for start in range(0, len(mixed), CALL_CASES)}
    for key, found in run_calls(run_cases, calls, backend="loky", jobs=jobs):
        for case, row in zip(calls[key][0], found, strict=True):
            yield case.case_id, row


def _fingerprint(cases: Sequence[Case]) -> str:
    """Of the version, the cases and the profiles they run on."""
    profiles = {case.gpu: resources.find("hardware_profiles", case.gpu) for case in cases}
    texts = [path.read_text(encoding="utf-8") for _, path in sorted(profiles.items()) if path is not None]
    return fingerprint(__version__, [[case.cell(column) for column in COLUMNS] for case in cases], texts)
