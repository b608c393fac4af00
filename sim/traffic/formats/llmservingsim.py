"""LLMServingSim's JSONL: one session per line with ``session_id``, ``arrival_time_ns`` and ``sub_requests`` of
``input_toks``, ``output_toks`` and ``tool_duration_ns``, the tool's run between that answer and the next request; or
one request per line, without sub-requests.

Known from github.com/casys-kaist/LLMServingSim. ``input_toks`` is the whole prompt. With ``input_tok_ids`` prompts
share what they begin alike, in pieces of 16 tokens; without, a prompt that is longer than the one before it and its
answer goes on from them, and any other shares nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from sim.engine.request import Piece
from sim.errors import Problem
from sim.traffic.cells import read_count, read_hash_ids
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.lines import Line, parsed, seconds_from_ns
from sim.traffic.sessions import Session, Turn, Wait
from sim.traffic.tables import JsonlTable

PIECE_TOKENS = 16


class LlmServingSim:
    """Sessions, read as a stream."""

    def __init__(self, table: JsonlTable) -> None:
        self.skips = table.skips
        self._table = table

    def sessions(self) -> Iterator[Session]:
        """In the file's order, which must be that of time; counted from the run's start as written."""
        last_s = 0.0
        for index, (line, session) in enumerate(parsed(self._table, _session)):
            if session.time_s < last_s:
                problem = "arrival_time_ns: this session arrives before the one above"
                self.skips.bad(Problem(line.file, line.number, "", problem, "sort the file by it"))
                continue
            last_s = session.time_s
            yield session._replace(session_id=index)


def _session(line: Line) -> tuple[Line, Session]:
    parts = line.parts("sub_requests") if "sub_requests" in line.said else [line]
    turns: list[Turn] = []
    before = 0  # prompt and answer of the turn before
    delay_s = 0.0
    for place, part in enumerate(parts):
        prompt, output = part.get("input_toks", read_count), part.get("output_toks", read_count)
        pieces = _pieces(part, prompt)
        goes_on = place > 0 and pieces is None and prompt > before
        turns.append(
            Turn(
                prompt - before if goes_on else prompt,
                output,
                output,
                extends=place - 1 if goes_on else None,
                pieces=pieces,
                waits=(Wait(place - 1, "completion", delay_s),) if place else (),
            )
        )
        before, delay_s = prompt + output, part.maybe("tool_duration_ns", seconds_from_ns, 0.0)
    return line, Session(line.maybe("arrival_time_ns", seconds_from_ns, 0.0), 0, tuple(turns))


def _pieces(part: Line, prompt_tokens: int) -> tuple[Piece, ...] | None:
    """Pieces named by all tokens up to their end."""
    ids = part.maybe("input_tok_ids", read_hash_ids, None)
    if not ids:
        return None
    if len(ids) != prompt_tokens:
        part.reject(f"input_tok_ids: {len(ids)} tokens for a prompt of {prompt_tokens}")
    digest, made = blake2b(digest_size=12), []
    for start in range(0, prompt_tokens, PIECE_TOKENS):
        piece = ids[start : start + PIECE_TOKENS]
        digest.update(piece.tobytes())
        made.append((f"t:{digest.hexdigest()}", len(piece)))
    return tuple(made)


def _open(opening: Opening) -> Sessions:
    return LlmServingSim(opening.objects())


def _recognises(columns: Mapping[str, Any]) -> bool:
    return "sub_requests" in columns or {"input_toks", "output_toks"} <= columns.keys()


FORMAT = Format("llmservingsim", _recognises, _open)
