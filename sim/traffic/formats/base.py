"""What every format of traces is: how to tell it, and how to open it.

A trace's requests stand alone (``RowTrace``), or follow one another (``Sessions``). Either is read as a stream, in
seconds of the trace; what the scenario changes of it comes after (``transforms.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sim.errors import Problem, TraceError
from sim.scenario import specs
from sim.traffic import hash_blocks
from sim.traffic.cells import read_count, read_hash_ids, read_name, read_priority, read_seconds
from sim.traffic.sessions import Session
from sim.traffic.skips import Skips, Unanswered
from sim.traffic.tables import JsonlTable, Table, read_cell

READERS: dict[str, Callable[[object], Any]] = {
    "prompt_tokens": read_count,
    "output_tokens": read_count,
    "priority": read_priority,
    "hash_ids": read_hash_ids,
    "session": read_name,
}
BLOCK_TOKENS = 512
"""Of Mooncake's traces, and of others that follow them."""


class Opening(NamedTuple):
    """What a format gets to open a trace with."""

    path: Path
    spec: specs.Trace
    wanted: frozenset[str]
    """What the trace must say of requests besides times."""
    seed: int
    skips: Skips
    table: Table | None
    """The file as a table, where it is one."""
    classes: tuple[str, ...] = ()
    """Names of the scenario's classes, where the trace says whose each request is."""

    @property
    def block_tokens(self) -> int:
        """Tokens per hash id: as the scenario says, else Mooncake's."""
        return self.spec.block_tokens or BLOCK_TOKENS

    def columns(self) -> Table:
        """The file as a table. Raises TraceError where it is none."""
        if self.table is None:
            cure = "name a file by what it is: .csv, .jsonl or .parquet"
            raise TraceError(Problem(str(self.path), None, "", "this is no table", cure))
        return self.table

    def objects(self) -> JsonlTable:
        """The file as JSONL. Raises TraceError where it is none."""
        if not isinstance(self.table, JsonlTable):
            cure = f"{self.spec.format} is a format of .jsonl files: see the README of workloads/"
            raise TraceError(Problem(str(self.path), None, "", "this is no JSONL", cure))
        return self.table


class Request(NamedTuple):
    """One line of a trace: what each of its columns says."""

    time_s: float
    cells: tuple[Any, ...]
    copy: int = 0
    """Which copy of a request that is sent several times."""


class RowTrace:
    """A trace whose requests stand alone: its header is understood, its rows are read when asked for.

    ``columns`` names what it says of a request besides the time, in order. ``read_clock_ns`` reads the times of a clock
    whose first one is time 0; None: they are seconds since the run's start. ``checks`` are columns that are read only
    to see whether a line is a request; ``classes`` are the names that a column of classes may have.
    """

    def __init__(
        self,
        table: Table,
        time_column: str,
        columns: dict[str, str],
        read_clock_ns: Callable[[object], int] | None,
        *,
        block_tokens: int = BLOCK_TOKENS,
        checks: Mapping[str, Callable[[object], Any]] | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        self.columns = tuple(columns)
        self.blocks = hash_blocks.HashBlocks(block_tokens)
        self.skips = table.skips
        self._table = table
        self._time_column = time_column
        readers = READERS | {"class_index": _read_class(classes)}
        self._fields = [(name, readers[column]) for column, name in columns.items()]
        self._checks = list((checks or {}).items())
        self._read_clock_ns = read_clock_ns

    def requests(self) -> Iterator[Request]:
        """The requests in the file's order, which must be that of time. Raises TraceError at the first bad line."""
        table, time_column, fields, checks = self._table, self._time_column, self._fields, self._checks
        read_time_s = read_seconds if self._read_clock_ns is None else _since_first_s(self._read_clock_ns)
        width, hashed = 1 + len(fields), "hash_ids" in self.columns
        last_s, empty = 0.0, True
        self.skips.begin()
        for number, row in table.rows([time_column, *(name for name, _ in (*fields, *checks))]):
            try:
                if checks:
                    for (name, read), cell in zip(checks, row[width:], strict=True):
                        read_cell(table, number, name, read, cell)
                    row = row[:width]
                time_s = read_cell(table, number, time_column, read_time_s, row[0])
                cells = [
                    read_cell(table, number, name, read, cell)
                    for (name, read), cell in zip(fields, row[1:], strict=True)
                ]
                if time_s < last_s:
                    problem = f"{time_column}: this request arrives {last_s - time_s:.9g} s before the one above"
                    table.reject(number, problem, f"sort the file by {time_column}")
                if hashed:
                    self._check_prompt(number, cells)
            except TraceError as error:
                self.skips.bad(error.problem)
                continue
            except Unanswered as reason:
                self.skips.leave_out(str(reason))
                continue
            last_s, empty = time_s, False
            yield Request(time_s, tuple(cells))
        if empty:
            table.reject(None, "there is no request", "give a line per request under the header")

    def _check_prompt(self, number: int, cells: list[Any]) -> None:
        said = dict(zip(self.columns, cells, strict=True))
        block_tokens = self.blocks.block_tokens
        problem = hash_blocks.fault(said["prompt_tokens"], said["hash_ids"], block_tokens)
        if problem is not None:
            cure = f"give one id per {block_tokens} tokens; for blocks of another size, set block_tokens"
            self._table.reject(number, f"hash_ids: {problem}", cure)


class Sessions(Protocol):
    """A trace whose requests follow one another."""

    skips: Skips

    def sessions(self) -> Iterator[Session]:
        """All of them, in order of ``time_s`` in seconds of the trace. Raises TraceError at a bad line."""
        ...


@runtime_checkable
class Rows(Protocol):
    """A trace whose requests stand alone."""

    columns: tuple[str, ...]
    blocks: hash_blocks.HashBlocks
    skips: Skips

    def requests(self) -> Iterator[Request]:
        """The requests in order of time."""
        ...


class Format(NamedTuple):
    """A format by name."""

    name: str
    recognises: Callable[[Mapping[str, Any]], bool]
    """Whether a file is of it, by its columns, with the values of the first line where that is a JSON object."""
    open: Callable[[Opening], Rows | Sessions]
    """Raises TraceError where the file's beginning shows that it is not of this format."""


def _read_class(names: Sequence[str]) -> Callable[[object], int]:
    """Reads the place of a class among the scenario's."""
    places = {name: place for place, name in enumerate(names)}

    def read_class(cell: object) -> int:
        name = read_name(cell)
        if name not in places:
            raise ValueError(f"{name!r} is none of the scenario's classes: {', '.join(places)}")
        return places[name]

    return read_class


def _since_first_s(read_clock_ns: Callable[[object], int]) -> Callable[[object], float]:
    """Reads seconds since the first time that is read."""
    first_ns: int | None = None

    def since_first_s(cell: object) -> float:
        nonlocal first_ns
        now_ns = read_clock_ns(cell)
        if first_ns is None:
            first_ns = now_ns
        return (now_ns - first_ns) / 1_000_000_000

    return since_first_s
