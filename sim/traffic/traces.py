"""Recorded traffic: arrival times and lengths from a trace file, read as a stream.

``azure``: the CSV of Azure's public LLM inference traces, ``TIMESTAMP,ContextTokens,GeneratedTokens`` (2023, and 2024
with a time zone). ``mooncake``: JSONL whose prompts share blocks, as ``mooncake.py`` tells. ``table``: CSV, JSONL or
Parquet with an arrival, a prompt and an output column, and perhaps a priority; ``SYNONYMS`` has the names.
``arrival_s`` counts from the run's start, as written; a ``timestamp`` is a clock time or seconds of some clock
(milliseconds in Mooncake's), and the first row is time 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from sim.scenario import specs
from sim.traffic import mooncake
from sim.traffic.arrivals import Block
from sim.traffic.cells import (
    read_clock_ms,
    read_clock_ns,
    read_count,
    read_hash_ids,
    read_priority,
    read_seconds,
)
from sim.traffic.tables import Table, open_table, read_cell

KEY_PATH = "traffic.arrivals.path"
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SYNONYMS = {
    "arrival_s": ("arrival_s", "arrival", "arrived_at", "arrival_time_s"),
    "timestamp": ("timestamp",),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "context_tokens", "input_length", "num_prefill_tokens"),
    "output_tokens": ("output_tokens", "generated_tokens", "output_length", "num_decode_tokens"),
    "priority": ("priority",),
}
READERS: dict[str, Callable[[object], Any]] = {
    "prompt_tokens": read_count,
    "output_tokens": read_count,
    "priority": read_priority,
    "hash_ids": read_hash_ids,
}
OPTIONAL = frozenset({"priority", "hash_ids"})
"""What a trace need not say."""


class Request(NamedTuple):
    """One line of a trace: what each of its columns says."""

    time_s: float
    cells: tuple[Any, ...]


class Trace:
    """An opened trace file: its header is understood, its rows are read when asked for.

    ``columns`` names what it says of a request besides the time, in order. ``read_clock_ns`` reads the times of a clock
    whose first one is time 0; None: they are seconds since the run's start.
    """

    def __init__(
        self,
        table: Table,
        time_column: str,
        columns: dict[str, str],
        read_clock_ns: Callable[[object], int] | None,
    ) -> None:
        self.columns = tuple(columns)
        self._table = table
        self._names = [time_column, *columns.values()]
        self._read_clock_ns = read_clock_ns

    def requests(self, time_scale: float) -> Iterator[Request]:
        """The requests in the file's order, which must be that of time. Raises TraceError at the first bad line."""
        table, names = self._table, self._names
        read_time_s = read_seconds if self._read_clock_ns is None else _since_first_s(self._read_clock_ns)
        fields = [(name, READERS[column]) for name, column in zip(names[1:], self.columns, strict=True)]
        last_s, empty = 0.0, True
        for number, row in table.rows(names):
            time_s = read_cell(table, number, names[0], read_time_s, row[0])
            cells = [
                read_cell(table, number, name, read, cell) for (name, read), cell in zip(fields, row[1:], strict=True)
            ]
            if time_s < last_s:
                table.reject(
                    number,
                    f"{names[0]}: this request arrives {last_s - time_s:.9g} s before the one above",
                    f"sort the file by {names[0]}",
                )
            if "hash_ids" in self.columns:
                self._check_prompt(number, cells)
            last_s, empty = time_s, False
            yield Request(time_s * time_scale, tuple(cells))
        if empty:
            table.reject(None, "there is no request", "give a line per request under the header")

    def _check_prompt(self, number: int, cells: list[Any]) -> None:
        said = dict(zip(self.columns, cells, strict=True))
        problem = mooncake.fault(said["prompt_tokens"], said["hash_ids"])
        if problem is not None:
            cure = f"give one id per {mooncake.BLOCK_TOKENS} tokens: these blocks may be of another size"
            self._table.reject(number, f"hash_ids: {problem}", cure)


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


class TraceSource:
    """Hands out a trace's requests until it ends or reaches ``stops_at_s``; reads no line before it is asked for."""

    def __init__(self, trace: Trace, time_scale: float, stops_at_s: float | None) -> None:
        requests = trace.requests(time_scale)
        if stops_at_s is not None:
            end_s = stops_at_s
            requests = takewhile(lambda request: request.time_s < end_s, requests)
        self._columns = trace.columns
        self._requests = requests

    def take(self, count: int) -> Block:
        """The next ``count`` requests, or what is left of them."""
        taken = list(islice(self._requests, count))
        columns = {name: [request.cells[index] for request in taken] for index, name in enumerate(self._columns)}
        hash_ids = columns.pop("hash_ids", None)
        counts = {name: np.array(column, dtype=np.int64) for name, column in columns.items()}
        return Block(np.array([request.time_s for request in taken], dtype=np.float64), hash_ids=hash_ids, **counts)


def open_trace(spec: specs.Trace, base_dir: Path, wanted: frozenset[str]) -> Trace:
    """Open a trace and understand its header; ``wanted``: what it must say besides times, and OPTIONAL if it can."""
    table = open_table(base_dir, spec.path, KEY_PATH)
    match _detected(table) if spec.format == "auto" else spec.format:
        case "azure":
            return _azure(table, wanted)
        case "mooncake":
            return _mooncake(table, wanted)
    return _table(table, wanted)


def _detected(table: Table) -> Literal["azure", "mooncake", "table"]:
    if set(AZURE_COLUMNS) <= set(table.columns):
        return "azure"
    return "mooncake" if {mooncake.TIME, *mooncake.FIELDS.values()} <= set(table.columns) else "table"


def _azure(table: Table, wanted: frozenset[str]) -> Trace:
    missing = [name for name in AZURE_COLUMNS if name not in table.columns]
    if missing:
        table.reject(1, f"the header has no {' and no '.join(missing)}", f"begin with: {','.join(AZURE_COLUMNS)}")
    time, prompt, output = AZURE_COLUMNS
    columns = {"prompt_tokens": prompt, "output_tokens": output}
    return Trace(table, time, {name: columns[name] for name in columns if name in wanted}, read_clock_ns)


def _mooncake(table: Table, wanted: frozenset[str]) -> Trace:
    fields = (mooncake.TIME, *mooncake.FIELDS.values())
    missing = [name for name in fields if name not in table.columns]
    if missing:
        table.reject(1, f"no {' and no '.join(missing)}", f"give each line of the JSONL: {', '.join(fields)}")
    if others := sorted(mooncake.SESSION_FIELDS & set(table.columns)):
        table.reject(1, f"{others[0]}: multi-turn traces are not built yet", "give whole prompts, without sessions")
    columns = {name: field for name, field in mooncake.FIELDS.items() if name in wanted}
    return Trace(table, mooncake.TIME, columns, read_clock_ms)


def _table(table: Table, wanted: frozenset[str]) -> Trace:
    if "hash_ids" in table.columns:
        table.reject(
            None,
            "this is a Mooncake trace, or nearly: a table's prompts share no blocks",
            "read it with format: mooncake, or leave hash_ids out if the shared blocks do not matter",
        )
    found = {meaning: name for meaning in SYNONYMS if (name := _column(table, meaning)) is not None}
    from_first = "arrival_s" not in found
    missing = sorted(wanted - found.keys() - OPTIONAL)
    if from_first and "timestamp" not in found:
        missing.insert(0, "arrival_s")
    if missing:
        known = "; ".join(f"{meaning}: {', '.join(SYNONYMS[meaning])}" for meaning in missing)
        table.reject(
            None, f"no column {' and no '.join(missing)} among {', '.join(table.columns)}", f"name it so ({known})"
        )
    time_column = found["timestamp"] if from_first else found["arrival_s"]
    columns = {meaning: name for meaning, name in found.items() if meaning in wanted}
    return Trace(table, time_column, columns, read_clock_ns if from_first else None)


def _column(table: Table, meaning: str) -> str | None:
    """The file's own name of a column; capitals do not matter."""
    by_lower_case = {name.lower(): name for name in reversed(table.columns)}
    return next((by_lower_case[name] for name in SYNONYMS[meaning] if name in by_lower_case), None)
