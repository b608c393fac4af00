"""mooncake-delta: Mooncake's lines with a ``session_id``, where ``input_length`` and ``hash_ids`` are of the new tokens
alone: a turn's prompt is the prompt before it, the answer really given, and the new tokens.

Known from Dynamo's replay (github.com/ai-dynamo/dynamo). The first turn starts at its ``timestamp`` (milliseconds). A
later one is sent ``delay`` milliseconds after the turn before it is answered; without a delay at its timestamp, if that
answer is there. Turns of a session may stand anywhere in the file, which is read whole.

``mooncake`` with sessions has the same keys, but whole prompts. Where the scenario names neither, a session that goes
on tells: a whole prompt begins with the blocks of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from sim.engine.request import Piece
from sim.traffic.cells import read_count, read_hash_ids, read_milliseconds, read_name, read_priority
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.lines import Line, parsed, seconds_from_ms
from sim.traffic.hash_blocks import fault, pieces
from sim.traffic.sessions import Session, Turn, Wait
from sim.traffic.skips import Skips
from sim.traffic.tables import JsonlTable

LOOKED_AT = 10_000
"""Lines in which a session that goes on is looked for."""


class _Line(NamedTuple):
    session: str
    time_ms: float | None
    delay_s: float | None
    prompt_tokens: int
    output_tokens: int
    priority: int
    prompt: tuple[Piece, ...] | None


class MooncakeTurns:
    """Sessions of Mooncake's lines; ``delta``: lengths and ids are of a turn's new tokens, else of its whole prompt."""

    def __init__(self, table: JsonlTable, block_tokens: int, *, delta: bool) -> None:
        self.skips: Skips = table.skips
        self._table = table
        self._block_tokens = block_tokens
        self._delta = delta

    def sessions(self) -> Iterator[Session]:
        """By start, counted from the first; the file is read before the first one is known."""
        by_session: dict[str, list[_Line]] = {}
        for line in parsed(self._table, self._parse):
            by_session.setdefault(line.session, []).append(line)
        starts = {name: lines[0].time_ms or 0.0 for name, lines in by_session.items()}
        first_ms = min(starts.values())
        for index, name in enumerate(sorted(by_session, key=lambda name: starts[name])):
            turns = self._turns(by_session[name], starts[name])
            yield Session((starts[name] - first_ms) / 1000, index, turns)

    def _turns(self, lines: list[_Line], start_ms: float) -> tuple[Turn, ...]:
        turns = []
        for place, line in enumerate(lines):
            due_s = 0.0
            if place and line.delay_s is None and line.time_ms is not None:
                due_s = max(0.0, line.time_ms - start_ms) / 1000
            turns.append(
                Turn(
                    line.prompt_tokens,
                    line.output_tokens,
                    line.output_tokens,
                    extends=place - 1 if place and self._delta else None,
                    pieces=line.prompt,
                    waits=(Wait(place - 1, "completion", line.delay_s or 0.0),) if place else (),
                    not_before_s=due_s,
                    priority=line.priority,
                )
            )
        return tuple(turns)

    def _parse(self, line: Line) -> _Line:
        prompt_tokens = line.get("input_length", read_count)
        ids = line.maybe("hash_ids", read_hash_ids, None)
        prompt = None
        if ids is not None:
            problem = fault(prompt_tokens, ids, self._block_tokens)
            if problem is not None:
                line.reject(f"hash_ids: {problem}", "set block_tokens to the size of these blocks")
            prompt = pieces(prompt_tokens, ids, f"line:{line.number}", self._block_tokens)
        return _Line(
            line.get("session_id", read_name),
            line.maybe("timestamp", read_milliseconds, None),
            line.maybe("delay", seconds_from_ms, None),
            prompt_tokens,
            line.get("output_length", read_count),
            line.maybe("priority", read_priority, 0),
            prompt,
        )


def _open(opening: Opening) -> Sessions:
    table = opening.objects()
    if "session_id" not in table.columns:
        table.reject(1, "no session_id", "read it with format: mooncake, or name the session of every turn")
    delta = opening.spec.format != "auto" or not _whole_prompts(table)
    return MooncakeTurns(table, opening.block_tokens, delta=delta)


def _whole_prompts(table: JsonlTable) -> bool:
    """Whether the first session that goes on does so with a prompt that begins with the blocks of the one before."""
    before: dict[object, list[object]] = {}
    for _, said in islice(table.objects(), LOOKED_AT):
        session, ids = str(said.get("session_id")), said.get("hash_ids")
        if not isinstance(ids, list) or not ids:
            continue
        if session in before:
            return ids[: len(before[session])] == before[session]
        before[session] = ids[:-1] or ids  # the last block may be short
    return False


def _recognises(columns: Mapping[str, Any]) -> bool:
    named = {"session_id", "input_length", "output_length"} <= columns.keys()
    return named and isinstance(columns.get("hash_ids", []), list)


FORMAT = Format("mooncake-delta", _recognises, _open)
