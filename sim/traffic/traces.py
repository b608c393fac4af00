"""Recorded traffic: a trace is opened by its format, and changed as the scenario wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from sim.scenario import specs
from sim.traffic.arrivals import Block, Integers
from sim.traffic.formats import FORMATS
from sim.traffic.formats.archive import is_archive, is_pool
from sim.traffic.formats.base import Opening, Request, Rows, Sessions
from sim.traffic.sessions import Session
from sim.traffic.skips import Skips
from sim.traffic.tables import JsonlTable, Table, find_file, table_of
from sim.traffic.transforms import changed, rescaled

KEY_PATH = "traffic.arrivals.path"


class Trace:
    """An opened trace whose requests stand alone; ``columns`` names what it says of them besides times."""

    def __init__(self, rows: Rows, spec: specs.Trace, seed: int) -> None:
        self.columns = rows.columns
        self.skips = rows.skips
        self.blocks = rows.blocks._replace(scale=spec.prompt_scale)
        self.spec = spec
        self._rows = rows
        self._seed = seed

    def requests(self) -> Iterator[Request]:
        """In order of time, from the start; their lengths as recorded. Raises TraceError at the first bad line."""
        return changed(self._rows.requests(), self.spec, self._seed)


class TracedSessions:
    """An opened trace whose requests follow one another."""

    def __init__(self, recorded: Sessions, spec: specs.Trace, seed: int) -> None:
        self.skips = recorded.skips
        self._recorded = recorded
        self._spec = spec
        self._seed = seed

    def sessions(self) -> Iterator[Session]:
        """In order of ``time_s``, from the start. Raises TraceError at a bad line."""
        spec = self._spec
        for session in changed(self._recorded.sessions(), spec, self._seed):
            if (spec.prompt_scale, spec.output_scale) == (1, 1):
                yield session
            else:
                yield rescaled(session, spec.prompt_scale, spec.output_scale)


class TraceSource:
    """Hands out a trace's requests until it ends or reaches ``stops_at_s``; reads no line before it is asked for."""

    def __init__(self, trace: Trace, stops_at_s: float | None) -> None:
        requests = trace.requests()
        if stops_at_s is not None:
            end_s = stops_at_s
            requests = takewhile(lambda request: request.time_s < end_s, requests)
        self._trace = trace
        self._requests = requests

    def take(self, count: int) -> Block:
        """The next ``count`` requests, or what is left of them."""
        taken, trace = list(islice(self._requests, count)), self._trace
        columns = {name: [request.cells[index] for request in taken] for index, name in enumerate(trace.columns)}
        hash_ids = columns.pop("hash_ids", None)
        counts = {name: np.array(column, dtype=np.int64) for name, column in columns.items()}
        spec = trace.spec
        blocks = None
        if hash_ids is not None:
            ids: Sequence[Sequence[int]] = hash_ids
            if spec.replicate > 1:
                ids = [_own(each, request.copy, spec.replicate) for each, request in zip(ids, taken, strict=True)]
            recorded = counts["prompt_tokens"].tolist()
            blocks = list(zip(recorded, ids, strict=True))
        for name, scale in (("prompt_tokens", spec.prompt_scale), ("output_tokens", spec.output_scale)):
            if scale != 1 and name in counts:
                counts[name] = _scaled(counts[name], scale)
        times_s = np.array([request.time_s for request in taken], dtype=np.float64)
        return Block(times_s, hash_ids=blocks, blocks=trace.blocks, **counts)


def _own(ids: Sequence[int], copy: int, copies: int) -> list[int]:
    """Ids that no other copy has."""
    return [block * copies + copy for block in ids]


def _scaled(tokens: Integers, scale: float) -> Integers:
    """As ``hash_blocks.scaled``."""
    return np.maximum(1, (tokens * scale + 0.5).astype(np.int64))


def open_trace(
    spec: specs.Trace, base_dir: Path, wanted: frozenset[str], seed: int, classes: tuple[str, ...] = ()
) -> Trace | TracedSessions:
    """Open a trace and understand its beginning. ``wanted``: what it must say besides times, and priority and hash_ids
    if it can; ``classes``: names that its column of classes may have.

    Raises ScenarioError where there is no such file, TraceError where it cannot be read.
    """
    path = find_file(base_dir, spec.path, KEY_PATH, folders=True)
    skips = Skips(lenient=spec.lenient)
    table = _table(path, skips)
    name = _detected(path, table) if spec.format == "auto" else spec.format
    opened = FORMATS[name].open(Opening(path, spec, wanted, seed, skips, table, classes))
    if isinstance(opened, Rows):
        return Trace(opened, spec, seed)
    return TracedSessions(opened, spec, seed)


def _table(path: Path, skips: Skips) -> Table | None:
    """None: the file is no table, but an archive, a folder or one JSON document."""
    if path.is_dir() or is_archive(path):
        return None
    if path.suffix.lower() == ".json" and not JsonlTable.begins(path):
        return None
    return table_of(path, skips)


def detected(path: Path) -> str:
    """The format of a trace, by its name and its beginning."""
    return _detected(path, _table(path, Skips()))


def _detected(path: Path, table: Table | None) -> str:
    if table is None:
        return "servegen" if is_archive(path) or is_pool(path) else "weka"
    columns: Mapping[str, Any] = table.first if isinstance(table, JsonlTable) else dict.fromkeys(table.columns)
    return next(name for name, each in FORMATS.items() if each.recognises(columns))
