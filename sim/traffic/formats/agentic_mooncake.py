"""agentic-mooncake, version 2: plays of agents, each a graph of requests.

Known from Dynamo's replay (github.com/ai-dynamo/dynamo). The first line is a header with ``block_size`` and
``hash_id_scope`` (local: ids of different plays share nothing; global: they do). Every other line is a request of a
``play_id`` with its whole prompt; it is sent when all its ``dependencies`` were dispatched or completed, each
``delay_ms`` ago, and not before ``not_before_ms`` of the trace's clock. A play is a session here; the file is read
whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from sim.engine.request import Piece
from sim.errors import TraceError
from sim.traffic.cells import read_count, read_hash_ids, read_milliseconds, read_name
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.lines import Line, parsed, seconds_from_ms
from sim.traffic.hash_blocks import fault, pieces
from sim.traffic.sessions import Session, Trigger, Turn, Wait
from sim.traffic.tables import JsonlTable

SCHEMA = "dynamo.agentic_mooncake"
TRIGGERS: dict[str, Trigger] = {"dispatch": "dispatch", "completion": "completion"}


class _Request(NamedTuple):
    line: Line
    play: str
    name: str
    time_ms: float
    prompt_tokens: int
    output_tokens: int
    prompt: tuple[Piece, ...]
    after: tuple[tuple[str, Trigger, float], ...]


class AgenticMooncake:
    """Sessions of plays."""

    def __init__(self, table: JsonlTable, block_tokens: int, *, local: bool) -> None:
        self.skips = table.skips
        self._table = table
        self._block_tokens = block_tokens
        self._local = local

    def sessions(self) -> Iterator[Session]:
        """By start, counted from the first."""
        plays: dict[str, list[_Request]] = {}
        for request in parsed(self._table, self._parse):
            if request is not None:
                plays.setdefault(request.play, []).append(request)
        if not plays:
            self._table.reject(None, "there is no request", "give lines of requests under the header")
        starts = {name: min(request.time_ms for request in play) for name, play in plays.items()}
        first_ms = min(starts.values())
        for index, name in enumerate(sorted(plays, key=lambda name: starts[name])):
            try:
                turns = self._turns(plays[name], starts[name])
            except TraceError as error:
                self.skips.bad(error.problem)
                continue
            yield Session((starts[name] - first_ms) / 1000, index, turns)

    def _parse(self, line: Line) -> _Request | None:
        """None: the header."""
        if "schema" in line.said:
            return None
        play, prompt_tokens = line.get("play_id", read_name), line.get("input_length", read_count)
        ids = line.maybe("hash_ids", read_hash_ids, array("q"))
        if problem := fault(prompt_tokens, ids, self._block_tokens):
            line.reject(f"hash_ids: {problem}", "mend block_size in the header")
        scope = f"h:{play}/" if self._local else "h:"
        prompt = pieces(prompt_tokens, ids, f"line:{line.number}", self._block_tokens, scope)
        return _Request(
            line,
            play,
            line.get("request_id", read_name),
            line.maybe("not_before_ms", read_milliseconds, 0.0),
            prompt_tokens,
            line.get("output_length", read_count),
            prompt,
            tuple(_dependency(part) for part in line.parts("dependencies", empty=True)),
        )

    def _turns(self, play: list[_Request], start_ms: float) -> tuple[Turn, ...]:
        by_name: dict[str, _Request] = {}
        for request in play:
            if by_name.setdefault(request.name, request) is not request:
                request.line.reject(f"request_id: this play has another request {request.name}")
        for request in play:
            for before, _, _ in request.after:
                if before not in by_name:
                    request.line.reject(f"dependencies: this play has no request {before}")
        order = _ordered(by_name)
        places = {name: place for place, name in enumerate(order)}
        return tuple(
            Turn(
                request.prompt_tokens,
                request.output_tokens,
                request.output_tokens,
                pieces=request.prompt,
                waits=tuple(Wait(places[before], trigger, delay_s) for before, trigger, delay_s in request.after),
                not_before_s=(request.time_ms - start_ms) / 1000,
            )
            for request in map(by_name.__getitem__, order)
        )


def _ordered(by_name: dict[str, _Request]) -> list[str]:
    """Each after what it waits for; else as in the file."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for request in by_name.values():
        sorter.add(request.name, *(before for before, _, _ in request.after))
    try:
        return list(sorter.static_order())
    except CycleError as error:
        names = error.args[1]
        by_name[names[0]].line.reject(f"dependencies: requests wait for each other: {', '.join(names)}")


def _dependency(part: Line) -> tuple[str, Trigger, float]:
    trigger = part.get("trigger", read_name)
    if trigger not in TRIGGERS:
        part.reject(f"trigger: {trigger!r} is neither dispatch nor completion")
    return part.get("request_id", read_name), TRIGGERS[trigger], part.maybe("delay_ms", seconds_from_ms, 0.0)


def _open(opening: Opening) -> Sessions:
    table = opening.objects()
    header = Line(str(table.path), 1, table.first)
    if table.first.get("schema") != SCHEMA or table.first.get("version") != 2:
        header.reject(f"the header does not say schema {SCHEMA}, version 2", "give a file of that version")
    scope = header.maybe("hash_id_scope", read_name, "local")
    if scope not in {"local", "global"}:
        header.reject(f"hash_id_scope: {scope!r} is neither local nor global")
    return AgenticMooncake(table, header.get("block_size", read_count), local=scope == "local")


def _recognises(columns: Mapping[str, Any]) -> bool:
    return columns.get("schema") == SCHEMA


FORMAT = Format("agentic-mooncake", _recognises, _open)
