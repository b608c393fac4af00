"""Recorded traffic: arrival times and lengths from a trace file, read as a stream.

``azure``: the CSV of Azure's public LLM inference traces, ``TIMESTAMP,ContextTokens,GeneratedTokens`` (2023, and 2024
with a time zone). ``table``: CSV, JSONL or Parquet with an arrival, a prompt and an output column, and perhaps a
priority; ``SYNONYMS`` has the names. ``arrival_s`` counts from the run's start, as written; a ``timestamp`` is a clock
time or seconds of some clock, and the first row is time 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sim.scenario import specs
from sim.traffic.arrivals import Block
from sim.traffic.cells import read_clock_ns, read_count, read_priority, read_seconds
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
READERS: dict[str, Callable[[object], int]] = {
    "prompt_tokens": read_count,
    "output_tokens": read_count,
    "priority": read_priority,
}


class Request(NamedTuple):
    """One line of a trace; a count is None where the trace has no such column."""

    time_s: float
    counts: tuple[int, ...]


class Trace:
    """An opened trace file: its header is understood, its rows are read when asked for.

    ``columns`` names what it says of a request besides the time, in order.
    """

    def __init__(self, table: Table, time_column: str, columns: dict[str, str], *, from_first: bool) -> None:
        self.columns = tuple(columns)
        self._table = table
        self._names = [time_column, *columns.values()]
        self._from_first = from_first

    def requests(self, time_scale: float) -> Iterator[Request]:
        """The requests in the file's order, which must be that of time. Raises TraceError at the first bad line."""
        table, names = self._table, self._names
        read_time_s = self._clock() if self._from_first else read_seconds
        fields = [(name, READERS[column]) for name, column in zip(names[1:], self.columns, strict=True)]
        last_s, empty = 0.0, True
        for number, cells in table.rows(names):
            time_s = read_cell(table, number, names[0], read_time_s, cells[0])
            counts = [
                read_cell(table, number, name, read, cell) for (name, read), cell in zip(fields, cells[1:], strict=True)
            ]
            if time_s < last_s:
                table.reject(
                    number,
                    f"{names[0]}: this request arrives {last_s - time_s:.9g} s before the one above",
                    f"sort the file by {names[0]}",
                )
            last_s, empty = time_s, False
            yield Request(time_s * time_scale, tuple(counts))
        if empty:
            table.reject(None, "there is no request", "give a line per request under the header")

    @staticmethod
    def _clock() -> Callable[[object], float]:
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
        counts = np.array([request.counts for request in taken], dtype=np.int64).reshape(len(taken), len(self._columns))
        columns = {name: counts[:, index] for index, name in enumerate(self._columns)}
        return Block(np.array([request.time_s for request in taken], dtype=np.float64), **columns)


def open_trace(spec: specs.Trace, base_dir: Path, wanted: frozenset[str]) -> Trace:
    """Open a trace and understand its header; ``wanted`` is what it is asked for besides times (priority if it can)."""
    table = open_table(base_dir, spec.path, KEY_PATH)
    kind = _detected(table) if spec.format == "auto" else spec.format
    return _azure(table, wanted) if kind == "azure" else _table(table, wanted)


def _detected(table: Table) -> Literal["azure", "table"]:
    return "azure" if set(AZURE_COLUMNS) <= set(table.columns) else "table"


def _azure(table: Table, wanted: frozenset[str]) -> Trace:
    missing = [name for name in AZURE_COLUMNS if name not in table.columns]
    if missing:
        table.reject(1, f"the header has no {' and no '.join(missing)}", f"begin with: {','.join(AZURE_COLUMNS)}")
    time, prompt, output = AZURE_COLUMNS
    columns = {"prompt_tokens": prompt, "output_tokens": output}
    return Trace(table, time, {name: columns[name] for name in columns if name in wanted}, from_first=True)


def _table(table: Table, wanted: frozenset[str]) -> Trace:
    if "hash_ids" in table.columns:
        table.reject(
            None,
            "this is a Mooncake trace: its timestamps are milliseconds and its prompts share blocks",
            "write its times as arrival_s in seconds and leave hash_ids out, if the shared blocks do not matter",
        )
    found = {meaning: name for meaning in SYNONYMS if (name := _column(table, meaning)) is not None}
    from_first = "arrival_s" not in found
    missing = sorted(wanted - found.keys() - {"priority"})
    if from_first and "timestamp" not in found:
        missing.insert(0, "arrival_s")
    if missing:
        known = "; ".join(f"{meaning}: {', '.join(SYNONYMS[meaning])}" for meaning in missing)
        table.reject(
            None, f"no column {' and no '.join(missing)} among {', '.join(table.columns)}", f"name it so ({known})"
        )
    time_column = found["timestamp"] if from_first else found["arrival_s"]
    columns = {meaning: name for meaning, name in found.items() if meaning in wanted}
    return Trace(table, time_column, columns, from_first=from_first)


def _column(table: Table, meaning: str) -> str | None:
    """The file's own name of a column; capitals do not matter."""
    by_lower_case = {name.lower(): name for name in reversed(table.columns)}
    return next((by_lower_case[name] for name in SYNONYMS[meaning] if name in by_lower_case), None)
