"""The points of a what-if grid and how each is told apart."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.errors import Problem, ScenarioError
from sim.scenario import parse_value


class Point(NamedTuple):
    """One run of a sweep: what it overrides, and its seed."""

    overrides: dict[str, Any]
    replication: int
    seed: int

    @property
    def key(self) -> str:
        """Names the point in a journal."""
        return json.dumps([self.overrides, self.replication, self.seed], sort_keys=True, default=str)


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``["a.b=1,2", "c=x,y"]`` as paths to values, each value as YAML. Commas inside brackets do not split.

    Raises ScenarioError for a text that is not PATH=V1,V2,...
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        path = path.strip()
        if path in grid:
            raise ScenarioError([Problem("--grid", None, path, "is given twice", "put all its values in one --grid")])
        if not path or not equals or not values.strip():
            problem = Problem(
                "--grid", None, "", f"{text!r} is not PATH=V1,V2,...", "write --grid traffic.arrivals.rate=4,8"
            )
            raise ScenarioError([problem])
        grid[path] = [parse_value(path, value, "--grid") for value in _split(values)]
    return grid


def _split(text: str) -> list[str]:
    """At commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def points(grid: Mapping[str, Sequence[Any]], replications: int, seed: int) -> list[Point]:
    """Every combination of the grid, first path outermost; replication ``r`` runs with seed ``seed + r``.

    All points of one replication share their seed, so that they differ by what was changed and not by chance
    (common random numbers).
    """
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [
        Point(overrides, replication, _seed(overrides, seed) + replication)
        for overrides in combinations
        for replication in range(replications)
    ]


def _seed(overrides: Mapping[str, Any], seed: int) -> int:
    """A grid may vary the seed itself."""
    own = overrides.get("seed", seed)
    return own if isinstance(own, int) else seed


def as_cell(value: Any) -> Any:
    """A grid's value as it stands in a table: mappings and lists as JSON text."""
    return value if isinstance(value, str | int | float | bool) or value is None else json.dumps(value)


def fingerprint(*parts: Any) -> str:
    """A short name of what a sweep depends on: scenario, grid, version."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flatten(summary: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested figures as ``ttft_s.p99`` columns; lists, and reasons that are no fixed set of names, are left out."""
    row: dict[str, Any] = {}
    for name, value in summary.items():
        if name == "rejections":
            continue
        if isinstance(value, Mapping):
            row.update(flatten(value, f"{prefix}{name}."))
        elif not isinstance(value, list):
            row[f"{prefix}{name}"] = value
    return row
