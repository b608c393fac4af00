"""Rows of a CSV, JSONL or Parquet file, read as a stream; every complaint names the file and the line."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.errors import Problem, ScenarioError, TraceError
from sim.traffic.cells import read_count

LONGEST_LINE_BYTES = 1_000_000
Row = tuple[int, Sequence[Any]]
"""Line of the file (row, in Parquet), cells."""
T = TypeVar("T")


class Table(Protocol):
    """A file with named columns."""

    path: Path
    columns: tuple[str, ...]

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The cells of these columns, row by row, from the file's start."""
        ...

    def reject(self, number: int | None, problem: str, cure: str) -> NoReturn:
        """Raise TraceError about a row."""
        ...


class _Text:
    """A UTF-8 text file; a byte order mark, CRLF and blank lines are tolerated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = ()

    def reject(self, number: int | None, problem: str, cure: str) -> NoReturn:
        """Raise TraceError about a line."""
        raise TraceError(Problem(str(self.path), number, "", problem, cure))


class _Lines:
    """One pass over a text file's lines that hold something; ``number`` is that of the line last read."""

    def __init__(self, table: _Text, file: BinaryIO) -> None:
        self._table = table
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while raw := self._file.readline(LONGEST_LINE_BYTES + 1):
            self.number += 1
            text = self._text(raw)
            if text.strip():
                yield text

    def _text(self, raw: bytes) -> str:
        try:
            text = raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if len(raw) > LONGEST_LINE_BYTES or "\0" in text:
            self._table.reject(self.number, "this is no UTF-8 text", "give CSV or JSONL in UTF-8, or a .parquet file")
        return text


class CsvTable(_Text):
    """Comma-separated, with a header line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as file:
            header = next(self._cells(file), None)
        if header is None:
            self.reject(None, "the file is empty", "give a file with a header line and a line per request")
        number, names = header
        self.columns = tuple(name.strip() for name in names)
        for name in filter(None, self.columns):
            if self.columns.count(name) > 1:
                self.reject(number, f"two columns are named {name}", "name every column once")

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The cells of these columns, line by line, from the file's start."""
        places, width = [self.columns.index(name) for name in columns], len(self.columns)
        with self.path.open("rb") as file:
            rows = self._cells(file)
            next(rows, None)
            for number, cells in rows:
                if len(cells) != width:
                    problem = f"{len(cells)} cells under a header of {width}"
                    self.reject(number, problem, "give every line one cell per column")
                yield number, [cells[place] for place in places]

    def _cells(self, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        lines = _Lines(self, file)
        try:
            for cells in csv.reader(lines, strict=True):
                yield lines.number, cells
        except csv.Error as error:
            self.reject(lines.number, f"no CSV: {error}", "close every quote; quote cells that hold commas or quotes")


class JsonlTable(_Text):
    """One JSON object per line; the first one's keys are the columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as file:
            first = next(self._objects(file), None)
        if first is None:
            self.reject(None, "the file is empty", "give a file with a JSON object per line and request")
        self.columns = tuple(first[1])

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The values of these keys, line by line, from the file's start; None where a line lacks one."""
        with self.path.open("rb") as file:
            for number, row in self._objects(file):
                yield number, [row.get(name) for name in columns]

    def _objects(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        lines = _Lines(self, file)
        for text in lines:
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                self.reject(lines.number, "this line is no JSON object", "write one JSON object per line")
            yield lines.number, row


class ParquetTable:
    """A Parquet file, read batch by batch."""

    def __init__(self, path: Path) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        self.path = path
        try:
            with ParquetFile(path) as file:
                self.columns = tuple(file.schema_arrow.names)
        except ArrowException as error:
            self.reject(None, f"no Parquet file: {error}", "name a file by what it is: .csv, .jsonl or .parquet")

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The cells of these columns, row by row, from the file's start."""
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        number = 0
        try:
            with ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=8192, columns=list(columns)):
                    cells = [batch.column(name).to_pylist() for name in columns]
                    for row in zip(*cells, strict=True):
                        number += 1
                        yield number, row
        except (ArrowException, OSError) as error:
            self.reject(None, f"unreadable after row {number}: {error}", "write the file anew")

    def reject(self, number: int | None, problem: str, cure: str) -> NoReturn:
        """Raise TraceError about a row."""
        row = "" if number is None else f"row {number}: "
        raise TraceError(Problem(str(self.path), None, "", row + problem, cure))


def open_table(base_dir: Path, name: str, key_path: str) -> Table:
    """Open a file the scenario names, by its extension. Raises ScenarioError at ``key_path`` if there is none."""
    try:
        path = base_dir / Path(name).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"no such file: {path}")
        match path.suffix.lower():
            case ".parquet" | ".pq":
                return ParquetTable(path)
            case ".jsonl" | ".ndjson" | ".json":
                return JsonlTable(path)
        return CsvTable(path)
    except (OSError, RuntimeError, ValueError) as error:
        cure = "give a path that starts at the scenario's folder, or an absolute one"
        raise ScenarioError([Problem("scenario", None, key_path, str(error), cure)]) from error


def read_cell(table: Table, number: int, name: str, read: Callable[[object], T], cell: object) -> T:
    """What a cell says. Raises TraceError with its line and column."""
    try:
        return read(cell)
    except ValueError as error:
        table.reject(number, f"{name}: {error}", "mend or drop this line")


def read_counts(base_dir: Path, name: str, column: str, key_path: str) -> NDArray[np.int64]:
    """One column of token counts, whole."""
    table = open_table(base_dir, name, f"{key_path}.path")
    if column not in table.columns:
        table.reject(None, f"no column {column!r}", f"set {key_path}.column to one of: {', '.join(table.columns)}")
    values = array("q")
    for number, cells in table.rows([column]):
        values.append(read_cell(table, number, column, read_count, cells[0]))
    if not values:
        table.reject(None, "there is no row", "give at least one length")
    return np.array(values, dtype=np.int64)
