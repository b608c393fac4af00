"""Sessions of which every request's time was recorded: a turn is sent at its time, but not before the turn before it
is answered. Prompts are whole, as recorded.

To know a session at its start, all its turns must be known: such a trace is read whole, some 300 bytes per request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sim.engine.request import Piece
from sim.traffic.formats.base import RowTrace
from sim.traffic.sessions import Session, Turn, Wait
from sim.traffic.tables import Table


class Recorded(NamedTuple):
    """One request of a session, in seconds of the trace."""

    time_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    pieces: tuple[Piece, ...] | None = None


def in_order(requests: Iterable[tuple[str, Recorded]]) -> Iterator[Session]:
    """Sessions by start from requests in whatever order; those of one session keep theirs at equal times."""
    by_session: dict[str, list[Recorded]] = {}
    for session, request in requests:
        by_session.setdefault(session, []).append(request)
    for turns in by_session.values():
        turns.sort(key=lambda turn: turn.time_s)
    for index, turns in enumerate(sorted(by_session.values(), key=lambda turns: turns[0].time_s)):
        yield _session(index, turns)


def _session(index: int, recorded: list[Recorded]) -> Session:
    start_s = recorded[0].time_s
    turns = tuple(
        Turn(
            request.prompt_tokens,
            request.output_tokens,
            request.output_tokens,
            pieces=request.pieces,
            waits=(Wait(place - 1, "completion", 0.0),) if place else (),
            not_before_s=request.time_s - start_s,
            priority=request.priority,
        )
        for place, request in enumerate(recorded)
    )
    return Session(start_s, index, turns)


class RecordedSessions:
    """Sessions from a table with a column that says whose turn a row is."""

    def __init__(
        self,
        table: Table,
        time_column: str,
        columns: dict[str, str],
        session_column: str,
        read_clock_ns: Callable[[object], int] | None,
    ) -> None:
        self.skips = table.skips
        self._rows = RowTrace(table, time_column, {**columns, "session": session_column}, read_clock_ns)

    def sessions(self) -> Iterator[Session]:
        """All of them, after the file has been read."""
        return in_order(self._requests())

    def _requests(self) -> Iterator[tuple[str, Recorded]]:
        columns = self._rows.columns
        for request in self._rows.requests():
            said = dict(zip(columns, request.cells, strict=True))
            priority = said.get("priority", 0)
            recorded = Recorded(request.time_s, said["prompt_tokens"], said["output_tokens"], priority)
            yield said["session"], recorded
