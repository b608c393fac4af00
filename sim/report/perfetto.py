"""A run as a Chrome trace that ui.perfetto.dev opens: steps and counters of each replica, requests as async slices.

Timestamps are microseconds of simulated time, to the nanosecond. Rows are written as they are made, so a trace of any
length takes the memory of one batch, and the same tables give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.results.files import replacing

if TYPE_CHECKING:
    import pandas as pd

_BATCH_ROWS = 20_000
_UNROUTED = 0
"""Process of requests that no replica took; replica ``r`` is process ``r + 1``."""
_PHASES = (
    ("dispatch", "arrival_s", "received_s"),
    ("queue", "received_s", "scheduled_s"),
    ("prefill", "scheduled_s", "first_token_s"),
    ("decode", "first_token_s", "finish_s"),
)
_TIMES = ("arrival_s", "received_s", "scheduled_s", "first_token_s", "finish_s")
_TOLD = ("class", "session_id", "priority", "prompt_tokens", "cached_tokens", "output_tokens", "preemptions", "status")
Event = dict[str, Any]
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=str)


def write_trace(requests: pd.DataFrame, steps: pd.DataFrame | Iterable[pd.DataFrame], path: str | Path) -> None:
    """Write ``path`` (``.json.gz``), whole or not at all. ``steps`` may come as a stream of tables in time's order."""
    path = Path(path)
    with (
        replacing(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
    ):
        text.write('{"displayTimeUnit":"ms","traceEvents":[')
        separator = "\n"
        for event in _events(requests, steps):
            text.write(separator + event)
            separator = ",\n"
        text.write("\n]}\n")


def _events(requests: pd.DataFrame, steps: pd.DataFrame | Iterable[pd.DataFrame]) -> Iterator[str]:
    tracks = _StepTracks()
    for table in _batches(steps):
        yield from tracks.events(table)
    yield from _request_events(requests, max(tracks.end_ns, _last_ns(requests)), tracks.replicas)


def _batches(tables: pd.DataFrame | Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Pieces of at most ``_BATCH_ROWS`` rows."""
    import pandas as pd

    for table in [tables] if isinstance(tables, pd.DataFrame) else tables:
        for first in range(0, len(table), _BATCH_ROWS):
            yield table.iloc[first : first + _BATCH_ROWS]


class _StepTracks:
    """Turns steps into slices and counters, remembering where each replica's track stands."""

    def __init__(self) -> None:
        self.replicas: set[int] = set()
        self.end_ns = 0
        self._ends_ns: dict[int, int] = {}
        self._levels: dict[tuple[int, str], Any] = {}

    def events(self, table: pd.DataFrame) -> Iterator[str]:
        starts_ns = _nanoseconds(table["start_s"])
        ends_ns = _nanoseconds(table["start_s"] + table["duration_s"])
        columns = [name for name in table.columns if name not in ("start_s", "duration_s", "replica")]
        rows = zip(*(table[name].tolist() for name in columns), strict=True)
        for replica, start_ns, end_ns, row in zip(table["replica"].tolist(), starts_ns, ends_ns, rows, strict=True):
            if replica not in self.replicas:
                self.replicas.add(replica)
                yield from _process(replica + 1, f"replica {replica}", "steps")
            yield from self._step(replica, start_ns, end_ns, dict(zip(columns, row, strict=True)))

    def _step(self, replica: int, start_ns: int, end_ns: int, args: Event) -> Iterator[str]:
        process, previous_ns = replica + 1, self._ends_ns.get(replica, 0)
        if abs(start_ns - previous_ns) <= 1:
            start_ns = previous_ns
        elif start_ns > previous_ns:
            yield from self._counters(process, previous_ns, {"running": 0, "waiting": 0})
        end_ns = max(start_ns, end_ns)
        yield (
            f'{{"ph":"X","pid":{process},"tid":1,"cat":"step","name":"{step_name(args)}","ts":{_us(start_ns)},'
            f'"dur":{_us(end_ns - start_ns)},"args":{_json(args)}}}'
        )
        yield from self._counters(process, start_ns, args)
        self._ends_ns[replica] = end_ns
        self.end_ns = max(self.end_ns, end_ns)

    def _counters(self, process: int, at_ns: int, args: Event) -> Iterator[str]:
        """Those that change."""
        for name, column in (("running", "running"), ("waiting", "waiting"), ("KV blocks", "kv_blocks_used")):
            level = args.get(column)
            if level is not None and self._levels.get((process, name)) != level:
                self._levels[process, name] = level
                value = f'"args":{{"{name}":{_json(level)}}}'
                yield f'{{"ph":"C","pid":{process},"ts":{_us(at_ns)},"name":"{name}",{value}}}'


def step_name(args: Event) -> str:
    """What kind of tokens a step computes."""
    prefill, decode = args.get("prefill_tokens", 0) > 0, args.get("decode_sequences", 0) > 0
    return "mixed" if prefill and decode else "prefill" if prefill else "decode" if decode else "empty"


def _request_events(requests: pd.DataFrame, end_ns: int, replicas: set[int]) -> Iterator[str]:
    named = {replica + 1 for replica in replicas}
    for table in _batches(requests):
        times = np.stack([_nanoseconds(table[name], missing=-1) for name in _TIMES], axis=1).tolist()
        told = [name for name in _TOLD if name in table.columns]
        rows = zip(*(table[name].tolist() for name in ("request_id", "replica", *told)), strict=True)
        for row_times, (request_id, replica, *values) in zip(times, rows, strict=True):
            process = max(int(replica) + 1, _UNROUTED)
            if process not in named:
                named.add(process)
                yield from _process(process, f"replica {replica}" if process else "not routed", "requests")
            known = dict(zip(_TIMES, row_times, strict=True))
            yield from _request(process, request_id, known, dict(zip(told, values, strict=True)), end_ns)


def _request(process: int, request_id: Any, times_ns: dict[str, int], args: Event, end_ns: int) -> Iterator[str]:
    """The request's slice around the slices of its phases; a phase that never ended reaches to the end of the trace.

    A rejected request ends where it was last seen.
    """
    seen = [time_ns for time_ns in times_ns.values() if time_ns >= 0]
    if not seen:
        return
    over = times_ns["finish_s"] >= 0 or args.get("status") in ("rejected", "failed")
    last_ns = max(seen) if over else max(end_ns, *seen)
    shared = f'"pid":{process},"tid":2,"cat":"request","id":{_json(str(request_id))}'
    yield _mark("b", shared, f"request {request_id}", min(seen), args)
    for name, begins, ends in _PHASES:
        start_ns = times_ns[begins]
        stop_ns = times_ns[ends] if times_ns[ends] >= 0 else last_ns
        if start_ns >= 0 and stop_ns > start_ns:
            yield _mark("b", shared, name, start_ns)
            yield _mark("e", shared, name, stop_ns)
            if times_ns[ends] < 0:
                break
    yield _mark("e", shared, f"request {request_id}", last_ns)


def _mark(kind: str, shared: str, name: str, at_ns: int, args: Event | None = None) -> str:
    extra = f',"args":{_json(args)}' if args else ""
    return f'{{"ph":"{kind}",{shared},"name":{_json(name)},"ts":{_us(at_ns)}{extra}}}'


def _process(process: int, name: str, thread: str) -> Iterator[str]:
    yield f'{{"ph":"M","pid":{process},"name":"process_name","args":{{"name":{_json(name)}}}}}'
    yield f'{{"ph":"M","pid":{process},"name":"process_sort_index","args":{{"sort_index":{process}}}}}'
    yield f'{{"ph":"M","pid":{process},"tid":1,"name":"thread_name","args":{{"name":{_json(thread)}}}}}'


def _last_ns(requests: pd.DataFrame) -> int:
    return max((int(_nanoseconds(requests[name], missing=0).max(initial=0)) for name in _TIMES), default=0)


def _nanoseconds(values_s: pd.Series[Any], missing: int = 0) -> np.ndarray:
    seconds = values_s.to_numpy(dtype=float, na_value=np.nan)
    known = np.isfinite(seconds)
    return np.where(known, np.rint(np.where(known, seconds, 0.0) * 1e9), missing).astype(np.int64)


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _json(value: Any) -> str:
    """Compact JSON; what is not finite is null, and what JSON does not know is its text."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        if isinstance(value, dict):
            return _ENCODER.encode({key: None if _not_finite(item) else item for key, item in value.items()})
        return "null"


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)
