"""The step table: rows as replicas report them, turned into columns a few thousand at a time."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from sim.results.columns import Table

STEP_COLUMNS = {
    "replica": "int32",
    "start_s": "float64",
    "duration_s": "float64",
    "prefill_tokens": "int64",
    "decode_sequences": "int64",
    "output_tokens": "int64",
    "context_tokens": "int64",
    "running": "int64",
    "waiting": "int64",
    "kv_blocks_used": "int64",
    "preemptions": "int32",
    "bound": "string",
    "compute_s": "float64",
    "memory_s": "float64",
    "communication_s": "float64",
    "host_s": "float64",
    "gap_s": "float64",
    "streaming": "int64",
}
"""Of a replica, in order of time. The four parts sum to the duration, kernel launch and exposed host time being the
host's. ``gap_s`` is the time since the replica's step before ended, and ``streaming`` how many requests got a token at
the end of both: their inter-token gap."""

BOUNDS = ("host", "communication", "compute", "memory")
"""The largest part; of equal ones the first."""
ROUNDING = 1e-9
"""Of a step's duration: less than this between device and duration is how floats add up, not host time."""
BUFFER_ROWS = 1024


class StepRow(NamedTuple):
    """A step that occupied its replica from ``planned_s`` to ``end_s``; counts are those when it was completed."""

    replica: int
    planned_s: float
    end_s: float
    prefill_tokens: int
    decode_sequences: int
    context_tokens: int
    running: int
    waiting: int
    kv_blocks_used: int
    preemptions: int
    compute_s: float
    memory_s: float
    communication_s: float
    launch_s: float
    gap_s: float
    streaming: int
    output_tokens: int
    """Given to clients at its end."""


class StepLog:
    """Takes rows (``StepRow``, or tuples of its fields) of all replicas and makes them columns of ``table``."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        """Not yet columns; full at ``BUFFER_ROWS``."""
        self._before: list[np.ndarray] = []
        """Rows before them, as arrays."""
        self._waiting = 0
        """How many rows those are."""
        self._table = Table(STEP_COLUMNS, vocabularies={"bound": BOUNDS})

    @property
    def table(self) -> Table:
        """All rows."""
        self.flush()
        return self._table

    def append_rows(self, row: tuple[Any, ...], count: int) -> None:
        """Many rows at once: for each field of ``StepRow`` an array, or the value that all rows share."""
        self._gather()
        rows = np.empty((len(row), count))
        for column, field in zip(rows, row, strict=True):
            column[:] = field
        self._before.append(rows)
        self._waiting += count
        self.flush_if_full()

    def flush_if_full(self) -> None:
        """Now and then, so that rows do not pile up."""
        if len(self.rows) + self._waiting >= BUFFER_ROWS:
            self.flush()

    def flush(self) -> None:
        """Turn the rows into columns."""
        self._gather()
        if self._before:
            rows = np.concatenate(self._before, axis=1)
            self._before.clear()
            self._waiting = 0
            self._table.append_columns(_columns(dict(zip(StepRow._fields, rows, strict=True))))

    def _gather(self) -> None:
        rows, width = self.rows, len(StepRow._fields)
        if rows:
            flat = np.fromiter(chain.from_iterable(rows), np.float64, count=len(rows) * width)
            self._before.append(flat.reshape(-1, width).T)
            self._waiting += len(rows)
            rows.clear()


def _columns(raw: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    duration_s = raw["end_s"] - raw["planned_s"]
    device_s = raw["compute_s"] + raw["memory_s"] + raw["communication_s"] + raw["launch_s"]
    exposed_s = duration_s - device_s
    host_s = raw["launch_s"] + np.where(exposed_s > ROUNDING * duration_s, exposed_s, 0.0)
    parts = np.stack([host_s, raw["communication_s"], raw["compute_s"], raw["memory_s"]])
    derived = {
        "start_s": raw["planned_s"],
        "duration_s": duration_s,
        "host_s": host_s,
        "bound": np.argmax(parts, axis=0),
    }
    return {name: derived.get(name, raw.get(name)) for name in STEP_COLUMNS}  # type: ignore[misc]
