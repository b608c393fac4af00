"""How long prompts and outputs are: distributions over token counts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.scenario import specs
from sim.scenario.lognormal import lognormal_sigma
from sim.scenario.specs import MOST_TOKENS
from sim.traffic.cells import read_count, read_whole
from sim.traffic.formats.table import column_of
from sim.traffic.skips import Skips
from sim.traffic.tables import Table, open_table, read_cell, read_counts

Integers = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Integers]
"""``count`` token counts from a generator."""


def build_lengths(spec: specs.Lengths, base_dir: Path, key_path: str) -> Draw:
    """The distribution the scenario gives at ``key_path``. An empirical one reads its file here."""
    match spec:
        case specs.Fixed():
            value = spec.value
            return lambda _, count: np.full(count, value, dtype=np.int64)
        case specs.Uniform():
            low, high = spec.low, spec.high
            return lambda generator, count: generator.integers(low, high, size=count, endpoint=True)
        case specs.VllmRandom() | specs.SglangRandom():
            low, high = spec.range_tokens
            return lambda generator, count: generator.integers(low, high, size=count, endpoint=True)
        case specs.Normal():
            return _normal(spec)
        case specs.LogNormal():
            return _lognormal(spec)
        case specs.Empirical():
            values = read_counts(base_dir, spec.path, spec.column, key_path)
            return lambda generator, count: values[generator.integers(len(values), size=count)]
    raise AssertionError(f"unknown distribution {spec}")


def build_pairs(spec: specs.JointLengths, base_dir: Path) -> tuple[dict[str, Draw], Skips]:
    """Both lengths of the file's rows, and what was left out: rows with a length of 0. Equal generators draw the same
    rows. Raises ScenarioError where there is no file, TraceError where it cannot be read.
    """
    table = open_table(base_dir, spec.path, "traffic.lengths.path")
    names = {"prompt_tokens": spec.prompt_column, "output_tokens": spec.output_column}
    columns = [_column(table, name, said) for name, said in names.items()]
    pairs = array("q")
    for number, row in table.rows(columns):
        tokens = [read_cell(table, number, column, read_whole, cell) for column, cell in zip(columns, row, strict=True)]
        if 0 in tokens:
            table.skips.leave_out(f"{table.path.name}: a length of 0 tokens")
        else:
            pairs.extend(
                read_cell(table, number, column, read_count, each) for column, each in zip(columns, tokens, strict=True)
            )
    if not pairs:
        table.reject(None, "there is no row with two lengths", "give at least one")
    values = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return {name: _rows(values[:, place]) for place, name in enumerate(names)}, table.skips


def _column(table: Table, name: str, said: str | None) -> str:
    column = said or column_of(table, name)
    if column is None or column not in table.columns:
        problem = f"no column of {name}" if column is None else f"no column {column!r}"
        key = f"traffic.lengths.{name.removesuffix('_tokens')}_column"
        table.reject(None, problem, f"set {key} to one of: {', '.join(table.columns)}")
    return column


def _rows(values: Integers) -> Draw:
    return lambda generator, count: values[generator.integers(len(values), size=count)]


def _normal(spec: specs.Normal) -> Draw:
    mean, std, low, high = spec.mean, spec.std, spec.low, spec.high

    def draw(generator: np.random.Generator, count: int) -> Integers:
        return _whole(mean + std * generator.standard_normal(count), low, high)

    return draw


def _lognormal(spec: specs.LogNormal) -> Draw:
    low, high = spec.low, spec.high
    sigma = spec.sigma if spec.p99 is None else lognormal_sigma(spec.mean, spec.p99)
    assert sigma is not None, "a lognormal has p99 or sigma"
    width, mu = sigma, math.log(spec.mean) - sigma**2 / 2

    def draw(generator: np.random.Generator, count: int) -> Integers:
        exponent = np.minimum(mu + width * generator.standard_normal(count), math.log(MOST_TOKENS))
        return _whole(np.exp(exponent), low, high)

    return draw


def _whole(values: NDArray[np.float64], low: int, high: int | None) -> Integers:
    """Rounded, then clipped."""
    return np.clip(np.rint(values), low, MOST_TOKENS if high is None else high).astype(np.int64)
