"""A what-if grid on all cores: one row per point and replication."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.errors import Problem, RidgelineError, ScenarioError
from sim.results.files import write_frame
from sim.results.summary import summarise
from sim.scenario import Loaded, load_scenario
from sim.study.grid import Point, as_cell, fingerprint, flatten, points
from sim.study.journal import Journal
from sim.study.pool import check_pool, run_calls

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]
"""Called with (points finished, points in all)."""
GRID = "--grid"
SUFFIXES = (".parquet", ".pq")


def run_point(source: str | dict[str, Any], base_overrides: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """One run as a flat row; a scenario that cannot be gives a row that says why in ``error``."""
    from sim.fleet import simulate

    cells = {path: as_cell(value) for path, value in point.overrides.items()}
    row: dict[str, Any] = {**cells, "replication": point.replication}
    try:
        loaded = load_scenario(source, overrides={**base_overrides, **point.overrides}, seed=point.seed)
        return {**row, "error": None, **flatten(summarise(simulate(loaded)))}
    except ScenarioError as error:
        return {**row, "seed": point.seed, "error": str(_as_grids(error, point))}
    except RidgelineError as error:
        return {**row, "seed": point.seed, "error": str(error)}


def sweep(
    scenario: str | Path | dict[str, Any],
    grid: Mapping[str, Sequence[Any]],
    *,
    overrides: Mapping[str, Any] | None = None,
    replications: int = 1,
    seed: int | None = None,
    out: str | Path | None = None,
    backend: str = "loky",
    jobs: int = -1,
    resume: bool = False,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Run every combination of ``grid`` (``{"traffic.arrivals.rate": [4, 8]}``).

    Returns one row per point and replication: the grid's paths, ``replication``, ``seed``, ``error`` (None, or why the
    point cannot run), and every figure of the summary as ``ttft_s.p99`` and so on. With ``out`` the table is written as
    Parquet, and finished points are kept in ``<out>.partial`` until then: ``resume=True`` goes on from there.
    ``jobs``: processes, -1 for one per core; ``backend``: see ``study.pool``. Raises RidgelineError when the scenario
    itself is wrong.
    """
    source = scenario if isinstance(scenario, dict) else str(scenario)
    base = dict(overrides or {})
    check_pool(backend, jobs)
    _check_paths(grid, base, seed)
    if out is not None:
        _check_out(Path(out))
    loaded = load_scenario(source, overrides=base, seed=seed)
    wanted = points(grid, replications, loaded.spec.seed)
    _check_grid(source, base, wanted)
    journal = _journal(out, loaded, wanted, resume=resume)
    rows = dict(journal.rows) if journal else {}
    todo = [point for point in wanted if point.key not in rows]
    try:
        for point, row in _run_all(source, base, todo, backend, jobs):
            rows[point.key] = row
            if journal:
                journal.add(point.key, row)
            if progress:
                progress(len(rows), len(wanted))
    except BaseException:
        if journal:
            journal.close(remove=False)
        raise
    table = _table([rows[point.key] for point in wanted], grid)
    if out is not None and journal is not None:
        write_frame(Path(out), table)
        journal.close(remove=True)
    return table


def _table(rows: Sequence[Mapping[str, Any]], grid: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Rows as columns; a grid path whose values are of several kinds is a column of text."""
    import pandas as pd

    table = pd.DataFrame(rows)
    for path in grid:
        if len({isinstance(value, str) for value in table[path]}) > 1:
            table[path] = table[path].map(str)
    return table


def _check_paths(grid: Mapping[str, Sequence[Any]], base: Mapping[str, Any], seed: int | None) -> None:
    """One value for each key of a point."""
    for path, values in grid.items():
        cells = [json.dumps(value, sort_keys=True, default=str) for value in values]
        if not values:
            raise ScenarioError([Problem(GRID, None, path, "has no values", "give at least one")])
        if len(set(cells)) < len(cells):
            raise ScenarioError([Problem(GRID, None, path, "has a value twice", "use --replications to run it again")])
        if path in base:
            raise ScenarioError([Problem(GRID, None, path, "is overridden too", "give it in one place")])
        if path == "seed" and seed is not None:
            raise ScenarioError([Problem(GRID, None, path, "is varied and fixed at once", "leave out --seed")])


def _check_out(out: Path) -> None:
    if out.is_dir() or out.suffix not in SUFFIXES:
        raise RidgelineError(f"{out}: the table is a Parquet file\n  cure: name it R{SUFFIXES[0]}")
    if not out.parent.is_dir():
        raise RidgelineError(f"{out.parent}: no such folder\n  cure: make it first, or choose another --out")


def _check_grid(source: str | dict[str, Any], base: Mapping[str, Any], wanted: Sequence[Point]) -> None:
    """Every value must make a valid scenario: a misspelt path is an error now, not a table of errors later."""
    for point in wanted:
        if point.replication == 0:
            try:
                load_scenario(source, overrides={**base, **point.overrides})
            except ScenarioError as error:
                raise _as_grids(error, point) from error


def _as_grids(error: ScenarioError, point: Point) -> ScenarioError:
    """Problems of the keys a grid varies, said to be the grid's."""
    return ScenarioError(
        [
            replace(problem, file=GRID) if any(_related(problem.path, path) for path in point.overrides) else problem
            for problem in error.problems
        ]
    )


def _related(one: str, other: str) -> bool:
    """Whether one key path leads to the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _journal(out: str | Path | None, loaded: Loaded, wanted: Sequence[Point], *, resume: bool) -> Journal | None:
    if out is None:
        return None
    name = fingerprint(__version__, loaded.data, [point.key for point in wanted])
    return Journal(Path(out), name, resume=resume)


def _run_all(
    source: str | dict[str, Any], base: Mapping[str, Any], todo: Sequence[Point], backend: str, jobs: int
) -> Iterator[tuple[Point, dict[str, Any]]]:
    calls = {point.key: (source, base, point) for point in todo}
    if jobs == 1 or len(todo) <= 1:
        finished: Iterator[tuple[str, Any]] = ((key, run_point(*call)) for key, call in calls.items())
    else:
        finished = run_calls(run_point, calls, backend=backend, jobs=jobs)
    by_key = {point.key: point for point in todo}
    return ((by_key[key], row) for key, row in finished)
