"""BurstGPT: CSV of ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``, in whole seconds from the
first midnight; the later release has ``Session ID,Elapsed time`` after the time. Columns are told by their names.

Found at github.com/HPMLL/BurstGPT (Wang et al., KDD 2025). Lines with 0 response tokens are requests that failed: they
are left out and counted. Requests stand alone in all releases: nothing is recorded of what a session's prompts share.
Bursts within a second are lost to its clock; ``spread: true`` spreads them.
"""

from __future__ import annotations

from sim.traffic.cells import read_clock_ns, read_count
from sim.traffic.formats.base import Format, Opening, RowTrace
from sim.traffic.skips import Unanswered

TIME, PROMPT, OUTPUT = "Timestamp", "Request tokens", "Response tokens"


def _read_answer(cell: object) -> int:
    """Raises Unanswered where there was none."""
    if str(cell).strip() in {"0", "0.0"}:
        raise Unanswered("failed: 0 response tokens")
    return read_count(cell)


def _open(opening: Opening) -> RowTrace:
    table = opening.columns()
    missing = [name for name in (TIME, PROMPT, OUTPUT) if name not in table.columns]
    if missing:
        table.reject(1, f"the header has no {' and no '.join(missing)}", "give BurstGPT's columns, or another format")
    columns = {"prompt_tokens": PROMPT, "output_tokens": OUTPUT}
    named = {name: columns[name] for name in columns if name in opening.wanted}
    return RowTrace(table, TIME, named, read_clock_ns, checks={OUTPUT: _read_answer})


FORMAT = Format("burstgpt", lambda columns: {TIME, PROMPT, OUTPUT} <= columns.keys(), _open)
