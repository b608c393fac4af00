"""Rows of a CSV, JSONL or Parquet file, read as a stream; every complaint names the file and the line."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sim.errors import Problem, ScenarioError, TraceError
from sim.traffic.cells import read_count
from sim.traffic.skips import Skips

LONGEST_LINE_BYTES = 1_000_000
LONGEST_OBJECT_BYTES = 64_000_000
"""Of a line of JSONL, which may hold a whole session."""
Row = tuple[int, Sequence[Any]]
"""Line of the file (row, in Parquet), cells."""
T = TypeVar("T")


class Table(Protocol):
    """A file with named columns."""

    path: Path
    columns: tuple[str, ...]
    skips: Skips
    """Takes note of lines that cannot be read, or raises."""

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The cells of these columns, row by row, from the file's start."""
        ...

    def reject(self, number: int | None, problem: str, cure: str) -> NoReturn:
        """Raise TraceError about a row."""
        ...

    def fault(self, number: int, problem: str, cure: str) -> None:
        """A row is left out; raises TraceError unless that is allowed."""
        ...


class _Text:
    """A UTF-8 text file, or one that gzip packed; a byte order mark, CRLF and blank lines are tolerated."""

    longest_bytes = LONGEST_LINE_BYTES

    def __init__(self, path: Path, skips: Skips | None = None) -> None:
        self.path = path
        self.skips = skips or Skips()
        self.columns: tuple[str, ...] = ()

    def open(self) -> IO[bytes]:
        """The file's bytes, unpacked."""
        if self.path.suffix.lower() == ".gz":
            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        return self.path.open("rb")

    def reject(self, number: int | None, problem: str, cure: str) -> NoReturn:
        """Raise TraceError about a line."""
        raise TraceError(Problem(str(self.path), number, "", problem, cure))

    def fault(self, number: int, problem: str, cure: str) -> None:
        """A line is left out; raises TraceError unless that is allowed."""
        self.skips.bad(Problem(str(self.path), number, "", problem, cure))


class _Lines:
    """One pass over a text file's lines that hold something; ``number`` is that of the line last read."""

    def __init__(self, table: _Text, file: IO[bytes]) -> None:
        self._table = table
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        try:
            while raw := self._file.readline(self._table.longest_bytes + 1):
                self.number += 1
                text = self._text(raw)
                if text is not None and text.strip():
                    yield text
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self._table.reject(self.number or None, f"no gzip file: {error}", "pack the file anew, or unpack it")

    def _text(self, raw: bytes) -> str | None:
        """None: the line is left out."""
        try:
            text = raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError:
            text = "\0"
        cure = "give CSV or JSONL in UTF-8, or a .parquet file"
        if len(raw) > self._table.longest_bytes:
            self._table.reject(self.number, "this is no UTF-8 text, or its lines have no end", cure)
        if "\0" in text:
            self._table.fault(self.number, "this is no UTF-8 text", cure)
            return None
        return text


class CsvTable(_Text):
    """Comma-separated, with a header line."""

    def __init__(self, path: Path, skips: Skips | None = None) -> None:
        super().__init__(path, skips)
        with self.open() as file:
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
        with self.open() as file:
            rows = self._cells(file)
            next(rows, None)
            for number, cells in rows:
                if len(cells) != width:
                    problem = f"{len(cells)} cells under a header of {width}"
                    self.fault(number, problem, "give every line one cell per column")
                    continue
                yield number, [cells[place] for place in places]

    def _cells(self, file: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
        lines = _Lines(self, file)
        try:
            for cells in csv.reader(lines, strict=True):
                yield lines.number, cells
        except csv.Error as error:
            self.reject(lines.number, f"no CSV: {error}", "close every quote; quote cells that hold commas or quotes")


class JsonlTable(_Text):
    """One JSON object per line; the first one's keys are the columns."""

    longest_bytes = LONGEST_OBJECT_BYTES

    def __init__(self, path: Path, skips: Skips | None = None) -> None:
        super().__init__(path, skips)
        with self.open() as file:
            first = next(self._objects(file), None)
        if first is None:
            self.reject(None, "the file is empty", "give a file with a JSON object per line and request")
        self.first = first[1]
        """The first object."""
        self.columns = tuple(self.first)

    @staticmethod
    def begins(path: Path) -> bool:
        """Whether the file's first line is a whole JSON object."""
        with path.open("rb") as file:
            line = file.readline(LONGEST_OBJECT_BYTES)
        try:
            return isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            return False

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The values of these keys, line by line, from the file's start; None where a line lacks one."""
        with self.open() as file:
            for number, row in self._objects(file):
                yield number, [row.get(name) for name in columns]

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects with their lines, from the file's start."""
        with self.open() as file:
            yield from self._objects(file)

    def _objects(self, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        lines = _Lines(self, file)
        for text in lines:
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                self.fault(lines.number, "this line is no JSON object", "write one JSON object per line")
                continue
            yield lines.number, row


class ParquetTable:
    """A Parquet file, read batch by batch."""

    def __init__(self, path: Path, skips: Skips | None = None) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        self.path = path
        self.skips = skips or Skips()
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

    def fault(self, number: int, problem: str, cure: str) -> None:
        """A row is left out; raises TraceError unless that is allowed."""
        self.skips.bad(Problem(str(self.path), None, "", f"row {number}: {problem}", cure))


def find_file(base_dir: Path, name: str, key_path: str, *, folders: bool = False) -> Path:
    """A file (or folder) the scenario names. Raises ScenarioError at ``key_path`` if there is none."""
    try:
        path = base_dir / Path(name).expanduser()
        if not (path.is_file() or (folders and path.is_dir())):
            raise FileNotFoundError(f"no such file: {path}")
        if path.is_file():
            path.open("rb").close()
        return path
    except (OSError, RuntimeError, ValueError) as error:
        cure = "give a path that starts at the scenario's folder, or an absolute one"
        raise ScenarioError([Problem("scenario", None, key_path, str(error), cure)]) from error


def table_of(path: Path, skips: Skips | None = None) -> Table:
    """Open a file by its extension; ``.gz`` may follow it. Raises TraceError where its beginning cannot be read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    match suffixes[-2 if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else -1] if suffixes else "":
        case ".parquet" | ".pq":
            return ParquetTable(path, skips)
        case ".jsonl" | ".ndjson" | ".json":
            return JsonlTable(path, skips)
    return CsvTable(path, skips)


def open_table(base_dir: Path, name: str, key_path: str) -> Table:
    """Open a file the scenario names, by its extension. Raises ScenarioError at ``key_path`` if there is none."""
    return table_of(find_file(base_dir, name, key_path))


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
