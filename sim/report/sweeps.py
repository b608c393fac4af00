"""A sweep's table as people read it: one line per point, replications averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.report.format import UNDEFINED, duration, percent, shortened, significant

if TYPE_CHECKING:
    import pandas as pd

_FIGURES = (
    ("ttft_s.p99", "TTFT p99", duration),
    ("tpot_s.p99", "TPOT p99", duration),
    ("throughput.output_tokens_per_s", "tokens/s", significant),
    ("slo.attainment", "in SLO", percent),
    ("verdict", "verdict", str),
    ("throughput.requests_per_s", "requests/s", significant),
    ("ttft_s.p50", "TTFT p50", duration),
    ("tpot_s.p50", "TPOT p50", duration),
    ("e2e_s.p99", "E2E p99", duration),
    ("kv.peak_utilization", "KV peak", percent),
)
"""Most wanted first; those that do not fit the width are left out."""
_NAME_LIMIT = 24


def varied_columns(frame: pd.DataFrame, varied: Sequence[str] | None = None) -> list[str]:
    """The grid's paths: as given, or the columns in front of ``replication``."""
    columns = [str(name) for name in frame.columns]
    if varied is not None:
        return [name for name in varied if name in columns]
    return columns[: columns.index("replication")] if "replication" in columns else []


def short_names(paths: Sequence[str]) -> list[str]:
    """The last part of each dotted path, or all of it where two would read the same."""
    last = [path.rpartition(".")[2] for path in paths]
    return [name if last.count(name) == 1 else path for name, path in zip(last, paths, strict=True)]


def points(frame: pd.DataFrame, varied: Sequence[str]) -> pd.DataFrame:
    """One row per point in the table's order: figures averaged over replications, texts joined where they differ.

    Points that could not run are left out.
    """
    import pandas as pd

    ran = frame[frame["error"].isna()] if "error" in frame.columns else frame
    if not varied or ran.empty:
        return ran.reset_index(drop=True)
    keys = [ran[name].map(str) for name in varied]
    rows = [
        {name: _together(group[name]) if name not in varied else group[name].iloc[0] for name in frame.columns}
        for _, group in ran.groupby(keys, sort=False)
    ]
    return pd.DataFrame(rows, columns=frame.columns)


def _together(values: pd.Series[Any]) -> Any:
    present = values.dropna()
    if present.empty:
        return None
    if present.dtype.kind in "iuf":
        return float(present.mean())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return float(sum(present) / len(present))
    return "/".join(dict.fromkeys(str(value) for value in present))


def sweep_cells(
    frame: pd.DataFrame, varied: Sequence[str] | None, width: int
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Header and rows of the printed table, at most ``width`` characters as far as the grid's own columns allow."""
    paths = varied_columns(frame, varied)
    averaged = points(frame, paths)
    names = [shortened(name, _NAME_LIMIT) for name in short_names(paths)]
    cells = [[shortened(str(value), _NAME_LIMIT) for value in averaged[path]] for path in paths]
    left = width + 2 - sum(_column_width(name, column) for name, column in zip(names, cells, strict=True))
    for column, name, show in _FIGURES:
        if column not in averaged.columns or averaged[column].isna().all():
            continue
        shown = [UNDEFINED if _missing(value) else show(value) for value in averaged[column]]
        left -= _column_width(name, shown)
        if left < 0 and len(names) >= len(paths) + 2:
            break
        names.append(name)
        cells.append(shown)
    return names, list(zip(*cells, strict=True))


def _column_width(name: str, cells: Sequence[str]) -> int:
    return max(map(len, (name, *cells))) + 2


def failures(frame: pd.DataFrame, varied: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Each point that could not run, with the first line of why."""
    if "error" not in frame.columns:
        return []
    paths = varied_columns(frame, varied)
    failed = frame[frame["error"].notna()]
    found = {point_name(row, paths): str(row["error"]).partition("\n")[0] for _, row in failed.iterrows()}
    return list(found.items())


def point_name(row: pd.Series[Any], paths: Sequence[str]) -> str:
    """``rate=8, replicas=2``."""
    names = short_names(paths)
    return ", ".join(f"{name}={row[path]}" for name, path in zip(names, paths, strict=True)) or "the point"


def _missing(value: Any) -> bool:
    return value is None or value != value
