"""Weka's agent sessions: one JSON object per session, in a file of its own (a folder of them is a trace) or on a line
of a JSONL file.

Known from inference-perf, guidellm and aiperf, which read them (corpus: SemiAnalysis AgentX, cc-traces-weka on Hugging
Face). A session has ``block_size`` (64), ``hash_id_scope`` (local: ids of different sessions share nothing; global) and
``requests``: of type n or s with ``t`` (seconds of the session), ``in``, ``out``, ``hash_ids``, ``api_time`` and
``think_time`` (seconds); or of type subagent with requests of its own. A sub-agent starts from the request before it,
and the next one waits for it unless its status is ``async_launched``. Prompts are whole and share what their ids say;
what waits for what comes from the times (``graph.py``). Requests without input or output are left out and counted.

All sessions begin at time 0 unless the scenario gives ``rate`` or ``concurrency``.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.errors import Problem
from sim.traffic.cells import read_count, read_hash_ids, read_name, read_seconds
from sim.traffic.formats.archive import members
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.graph import Call, turns
from sim.traffic.formats.lines import Line, kept, parsed
from sim.traffic.hash_blocks import fault, pieces
from sim.traffic.sessions import Session, Turn
from sim.traffic.skips import Skips, Unanswered
from sim.traffic.tables import JsonlTable

BLOCK_TOKENS = 64
ASYNC = "async_launched"


class Weka:
    """Sessions, read as a stream."""

    def __init__(self, path: Path, table: JsonlTable | None, skips: Skips, block_tokens: int | None) -> None:
        self.skips = skips
        self._path = path
        self._table = table
        self._block_tokens = block_tokens

    def sessions(self) -> Iterator[Session]:
        """In the order of files and lines, all at time 0."""
        each = self._documents() if self._table is None else parsed(self._table, self._turns)
        for index, made in enumerate(each):
            yield Session(0.0, index, made)

    def _documents(self) -> Iterator[tuple[Turn, ...]]:
        self.skips.begin()
        empty = True
        for name, content in [("", self._path.read_bytes())] if self._path.is_file() else members(self._path):
            if name and not name.endswith(".json"):
                continue
            file = str(self._path / name)
            try:
                said = json.loads(content)
            except (ValueError, RecursionError):
                said = None
            if not isinstance(said, dict):
                self.skips.bad(Problem(file, None, "", "this is no JSON object", "give one session per file"))
                continue
            for one in kept(self.skips, self._turns, Line(file, None, said)):
                empty = False
                yield one
        if empty:
            Line(str(self._path), None, {}).reject("there is no session", "give .json files of one session each")

    def _turns(self, line: Line) -> tuple[Turn, ...]:
        block_tokens = self._block_tokens or line.maybe("block_size", read_count, BLOCK_TOKENS)
        local = line.maybe("hash_id_scope", read_name, "local") != "global"
        scope = f"h:{line.get('id', read_name)}/" if local else "h:"
        calls: list[Call] = []
        parents: dict[int, int | None] = {0: None}
        self._lane(line, 0, calls, parents, block_tokens, scope)
        if not calls:
            line.reject("requests: none has an input and an output")
        return turns(calls, parents)

    def _lane(
        self,
        agent: Line,
        lane: int,
        calls: list[Call],
        parents: dict[int, int | None],
        block_tokens: int,
        scope: str,
    ) -> None:
        """Add the requests of an agent, and of those it sends out."""
        joins: tuple[int, ...] = ()
        for part in agent.parts("requests"):
            if part.said.get("type") == "subagent":
                child = len(parents)
                parents[child] = lane
                self._lane(part, child, calls, parents, block_tokens, scope)
                if part.said.get("status") != ASYNC:
                    joins = (*joins, child)
                continue
            try:
                calls.append(_call(part, lane, joins, block_tokens, scope))
            except Unanswered as reason:
                self.skips.leave_out(str(reason))
                continue
            joins = ()


def _call(part: Line, lane: int, joins: tuple[int, ...], block_tokens: int, scope: str) -> Call:
    if part.said.get("in") == 0 or part.said.get("out") == 0:
        raise Unanswered("request without input or output")
    prompt, sent_s = part.get("in", read_count), part.get("t", read_seconds)
    ids = part.maybe("hash_ids", read_hash_ids, array("q"))
    if problem := fault(prompt, ids, block_tokens):
        part.reject(f"hash_ids: {problem}", "set block_tokens, or mend block_size")
    private = f"{scope}own:{lane}:{sent_s:.9g}"
    return Call(
        sent_s,
        sent_s + part.maybe("api_time", read_seconds, 0.0),
        prompt,
        part.get("out", read_count),
        pieces(prompt, ids, private, block_tokens, scope) if ids else None,
        lane,
        joins,
        part.maybe("think_time", read_seconds, None),
    )


def _open(opening: Opening) -> Sessions:
    table = opening.table if isinstance(opening.table, JsonlTable) else None
    return Weka(opening.path, table, opening.skips, opening.spec.block_tokens)


def _recognises(columns: Mapping[str, Any]) -> bool:
    return "requests" in columns and "id" in columns


FORMAT = Format("weka", _recognises, _open)
