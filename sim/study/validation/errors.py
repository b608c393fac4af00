"""Statistics of prediction errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sim.study.validation.cases import METRICS, Case

Errors = dict[str, float]
"""``n``, ``mape``, ``median_ape``, ``p90_ape`` and ``bias`` of one metric."""
AXES = ("gpu", "engine", "model", "load", "set")
"""Columns by which errors are told apart."""


class Compared(NamedTuple):
    """A case that ran: what was predicted, by metric."""

    case: Case
    predicted: dict[str, float]

    def error(self, metric: str) -> float | None:
        """Predicted / measured - 1; None where one of the two is not there."""
        measured, predicted = self.case.measured.get(metric), self.predicted.get(metric)
        return None if measured is None or predicted is None else predicted / measured - 1


def statistics(errors: Sequence[float]) -> Errors:
    """Of signed errors as fractions: their number, mean, median and 90th percentile of the magnitudes, and the signed
    median as ``bias``. Percentiles interpolate linearly.
    """
    signed = np.asarray(errors, dtype=np.float64)
    sizes = np.abs(signed)
    return {
        "n": len(signed),
        "mape": float(sizes.mean()),
        "median_ape": float(np.median(sizes)),
        "p90_ape": float(np.percentile(sizes, 90)),
        "bias": float(np.median(signed)),
    }


def by_metric(compared: Iterable[Compared]) -> dict[str, Errors]:
    """Statistics of every metric that at least one case measured."""
    rows = list(compared)
    found = {metric: [error for row in rows if (error := row.error(metric)) is not None] for metric in METRICS}
    return {metric: statistics(errors) for metric, errors in found.items() if errors}


def by_column(compared: Sequence[Compared]) -> dict[str, dict[str, dict[str, Errors]]]:
    """``by_metric`` of the cases that share a value of each of ``AXES``."""
    return {axis: _grouped(compared, lambda row, axis=axis: row.case.cell(axis)) for axis in AXES}  # type: ignore[misc]


def _grouped(compared: Sequence[Compared], key: Callable[[Compared], str]) -> dict[str, dict[str, Errors]]:
    groups: dict[str, list[Compared]] = {}
    for row in compared:
        groups.setdefault(key(row), []).append(row)
    return {name: by_metric(rows) for name, rows in sorted(groups.items())}
