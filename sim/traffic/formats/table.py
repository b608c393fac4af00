"""Tables: CSV, JSONL or Parquet with an arrival, a prompt and an output column, and perhaps a priority and a session;
``SYNONYMS`` has the names. ``arrival_s`` counts from the run's start, as written; a ``timestamp`` is a clock time or
seconds of some clock, and the first row is time 0.

Rows with the same ``session_id`` are turns of one session: each is sent at its time, but not before the one before it
is answered (``recorded.py``). A ``class`` says which of ``traffic.classes`` a request is of, where these have neither
shares nor arrivals of their own.
"""

from __future__ import annotations

from sim.traffic.cells import read_clock_ns
from sim.traffic.formats.base import Format, Opening, RowTrace, Sessions
from sim.traffic.formats.recorded import RecordedSessions
from sim.traffic.tables import Table

SYNONYMS = {
    "arrival_s": ("arrival_s", "arrival", "arrived_at", "arrival_time_s"),
    "timestamp": ("timestamp",),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "context_tokens", "input_length", "num_prefill_tokens"),
    "output_tokens": ("output_tokens", "generated_tokens", "output_length", "num_decode_tokens"),
    "priority": ("priority",),
    "session": ("session_id", "session"),
    "class_index": ("class", "class_name"),
}
OPTIONAL = frozenset({"priority", "hash_ids"})
"""What a trace need not say."""


def _open(opening: Opening) -> RowTrace | Sessions:
    table = opening.columns()
    if "hash_ids" in table.columns:
        table.reject(
            None,
            "this is a Mooncake trace, or nearly: a table's prompts share no blocks",
            "read it with format: mooncake, or leave hash_ids out if the shared blocks do not matter",
        )
    found = {meaning: name for meaning in SYNONYMS if (name := column_of(table, meaning)) is not None}
    session = found.pop("session", None)
    from_first = "arrival_s" not in found
    wanted = opening.wanted
    missing = sorted(wanted - found.keys() - OPTIONAL)
    if from_first and "timestamp" not in found:
        missing.insert(0, "arrival_s")
    if missing:
        known = "; ".join(f"{SYNONYMS[meaning][0]}: {', '.join(SYNONYMS[meaning])}" for meaning in missing)
        names = " and no ".join(SYNONYMS[meaning][0] for meaning in missing)
        table.reject(None, f"no column {names} among {', '.join(table.columns)}", f"name it so ({known})")
    time_column = found["timestamp"] if from_first else found["arrival_s"]
    columns = {meaning: name for meaning, name in found.items() if meaning in wanted}
    clock = read_clock_ns if from_first else None
    if session is None:
        return RowTrace(table, time_column, columns, clock, classes=opening.classes)
    return RecordedSessions(table, time_column, columns, session, clock)


def column_of(table: Table, meaning: str) -> str | None:
    """The file's own name of a column; capitals do not matter."""
    by_lower_case = {name.lower(): name for name in reversed(table.columns)}
    return next((by_lower_case[name] for name in SYNONYMS[meaning] if name in by_lower_case), None)


FORMAT = Format("table", lambda _: True, _open)
