"""One row per request, filled in as it moves through the fleet; columns, never objects."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

NAN = float("nan")
STATUSES = ("submitted", "completed", "rejected", "unfinished", "failed", "cancelled")
SUBMITTED, COMPLETED, REJECTED, UNFINISHED, FAILED, CANCELLED = range(6)
"""failed: its client timed out; cancelled: its user did not want it any more. Both keep the tokens they got."""

_TIMES = ("arrival_s", "client_wait_s", "received_s", "scheduled_s", "first_token_s", "finish_s")
_PARTS = ("prefill_s", "decode_s", "decode_interference_s", "decode_stall_s", "itl_max_s")
_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "preemptions", "priority", "replica")
_NOTHING = {
    **dict.fromkeys((*_TIMES, "prefill_s"), NAN),
    **dict.fromkeys(("client_wait_s", *_PARTS[1:]), 0.0),
    **dict.fromkeys(_COUNTS, 0),
    "replica": -1,
    "status": SUBMITTED,
}
"""What a column holds before anything happens."""
_GROWTH_ROWS = 4096


class RequestLog:
    """Growing columns indexed by request_id (the order of submission).

    Times are seconds of simulated time, NaN until they happen. The parts split a request's life: see ``frame``.
    """

    def __init__(self, *, in_sessions: bool = False, with_return: bool = False, classes: Sequence[str] = ()) -> None:
        """``in_sessions``: requests belong to sessions; else each is one of its own. ``with_return``: chunks take
        ``return_s`` from the engine to the client. ``classes``: their names; without, all are of one, ``default``.
        """
        self._count = 0
        self._room = 0
        self._columns = (
            _NOTHING
            | ({"session_id": 0} if in_sessions else {})
            | ({"return_s": 0.0} if with_return else {})
            | ({"class_index": 0} if classes else {})
        )
        self.classes = tuple(classes) or ("default",)
        self.class_index = array("b")
        self.return_s = array("d")
        self.session_id = array("q")
        self.arrival_s = array("d")
        self.client_wait_s = array("d")
        self.received_s = array("d")
        self.scheduled_s = array("d")
        self.first_token_s = array("d")
        self.finish_s = array("d")
        self.prefill_s = array("d")
        self.decode_s = array("d")
        self.decode_interference_s = array("d")
        self.decode_stall_s = array("d")
        self.itl_max_s = array("d")
        self.prompt_tokens = array("q")
        self.cached_tokens = array("q")
        self.output_tokens = array("q")
        self.preemptions = array("q")
        self.priority = array("q")
        self.replica = array("q")
        self.status = array("b")

    def __len__(self) -> int:
        return self._count

    def submit(
        self,
        arrival_s: float,
        prompt_tokens: int,
        priority: int,
        client_wait_s: float = 0.0,
        session_id: int | None = None,
    ) -> int:
        """A client sends a request, ``client_wait_s`` after it was due; returns its request_id."""
        row = self._count
        if row == self._room:
            self._grow()
        self._count = row + 1
        self.arrival_s[row] = arrival_s
        self.prompt_tokens[row] = prompt_tokens
        if priority:
            self.priority[row] = priority
        if client_wait_s:
            self.client_wait_s[row] = client_wait_s
        if session_id is not None:
            self.session_id[row] = session_id
        return row

    def close(self) -> None:
        """The run is over: what has not ended is unfinished."""
        status = np.frombuffer(self.status, dtype=np.int8)
        status[status == SUBMITTED] = UNFINISHED

    def _grow(self) -> None:
        """Room for more rows: nothing has happened to them yet."""
        for name, nothing in self._columns.items():
            column = getattr(self, name)
            column.extend(array(column.typecode, [nothing]) * _GROWTH_ROWS)
        self._room += _GROWTH_ROWS

    def columns(self) -> dict[str, np.ndarray]:
        """The raw columns as arrays: views, and while one of them lives the log cannot grow."""
        return {name: np.asarray(getattr(self, name))[: self._count] for name in self._columns}


Columns = dict[str, np.ndarray]


def _unless_one_token(raw: Columns, values: np.ndarray) -> np.ndarray:
    return np.where(raw["output_tokens"] > 1, values, np.nan)


def _at_client(raw: Columns, event: str) -> np.ndarray:
    """When a chunk that left the engine at that time was at its client."""
    return raw[event] + raw["return_s"] if "return_s" in raw else raw[event]


def _class_index(raw: Columns) -> np.ndarray:
    return raw["class_index"] if "class_index" in raw else np.zeros(len(raw["arrival_s"]), dtype=np.int8)


_DERIVED: dict[str, Callable[[Columns], np.ndarray]] = {
    "request_id": lambda raw: np.arange(len(raw["arrival_s"])),
    "class": _class_index,
    "class_index": _class_index,
    "session_id": lambda raw: raw["session_id"] if "session_id" in raw else np.arange(len(raw["arrival_s"])),
    "return_s": lambda raw: raw["return_s"] if "return_s" in raw else np.zeros(len(raw["arrival_s"])),
    "ttft_s": lambda raw: _at_client(raw, "first_token_s") - raw["arrival_s"],
    "tpot_s": lambda raw: (raw["finish_s"] - raw["first_token_s"]) / _unless_one_token(raw, raw["output_tokens"] - 1),
    "itl_max_s": lambda raw: _unless_one_token(raw, raw["itl_max_s"]),
    "e2e_s": lambda raw: _at_client(raw, "finish_s") - raw["arrival_s"],
    "dispatch_s": lambda raw: raw["received_s"] - raw["arrival_s"],
    "queue_s": lambda raw: raw["scheduled_s"] - raw["received_s"],
    "prefill_stall_s": lambda raw: raw["first_token_s"] - raw["scheduled_s"] - raw["prefill_s"],
}
REQUEST_COLUMNS = (
    "request_id", "class", "session_id", "replica", "priority", *_TIMES,
    "prompt_tokens", "cached_tokens", "output_tokens", "preemptions", "status",
    "ttft_s", "tpot_s", "itl_max_s", "e2e_s",
    "dispatch_s", "queue_s", "prefill_s", "prefill_stall_s", "return_s",
    "decode_s", "decode_interference_s", "decode_stall_s",
)  # fmt: skip
"""In order; what is not derived is as recorded."""


def derive(raw: Columns, names: Iterable[str] = REQUEST_COLUMNS, rows: slice | np.ndarray = slice(None)) -> Columns:
    """The request table's columns, or some of them, with the latencies at their definition's home;
    ``status`` and ``class`` as codes.

    Without ``traffic.classes`` every request is of the class ``default``, and without ``traffic.sessions`` a session of
    its own.

    ``client_wait_s``: how long it waited for a free client before it was sent; in no latency below.
    ``ttft_s``: first token - the client's send. ``tpot_s``: (e2e - ttft) / (output tokens - 1), NaN for one token.
    ``e2e_s``: last token - send. ``queue_s``: first step that schedules the request - the engine's receipt.
    Parts of ttft: dispatch_s (send to receipt) + queue_s + prefill_s (steps that carried its chunks) + prefill_stall_s
    (scheduled but waiting for a step in flight, or preempted) + return_s (detokenisation and network, of every chunk;
    ``first_token_s`` and ``finish_s`` are the engine's, without it). Parts of e2e - ttft: decode_s (steps that only
    decode) + decode_interference_s (steps that also prefill others) + decode_stall_s (preempted or starved).
    """
    return {name: (_DERIVED[name](raw) if name in _DERIVED else raw[name])[rows] for name in names}


def frame(log: RequestLog) -> pd.DataFrame:
    """The request table, one row per request in order of submission."""
    import pandas as pd

    columns = derive(log.columns())
    columns["class"] = np.array(log.classes, dtype=object)[columns["class"]]
    columns["status"] = np.array(STATUSES, dtype=object)[columns["status"]]
    return pd.DataFrame(columns, copy=True)
