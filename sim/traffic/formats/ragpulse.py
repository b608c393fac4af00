"""RAGPulse: a week's questions to a university, with the parts each prompt was put together from.

Found at github.com/flashserve/RAGPulse (Wang et al., 2025): ``0_trace.jsonl`` has ``timestamp`` (seconds),
``input_length``, ``output_length``, ``session_id`` and ``hash_ids`` of the prompt's parts (system prompt, passages,
history, web search, question), in that order. How long each part is stands in the files ``1_*.jsonl`` to ``5_*.jsonl``
beside it: where they are, prompts share the parts they begin with alike; where they are not, they share nothing. Where
lengths do not add up to ``input_length``, the last parts are cut, or what is left is the request's own.

The published file holds two weeks: its clock goes back to 0 once, where the session ids say that the next week begins.
Each time it goes back a week is added. A request is sent at its time, but not before the one before it in its session
is answered (``recorded.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.engine.request import Piece
from sim.traffic.cells import read_count, read_hash_ids, read_name, read_seconds
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.lines import Line, parsed
from sim.traffic.formats.recorded import Recorded, in_order
from sim.traffic.sessions import Session
from sim.traffic.tables import JsonlTable, table_of

WEEK_S = 7 * 24 * 3600.0
PARTS = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
FILES = ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")


class RagPulse:
    """Sessions with recorded times."""

    def __init__(self, table: JsonlTable) -> None:
        self.skips = table.skips
        self._table = table
        self._part_tokens: dict[int, int] | None = None

    def sessions(self) -> Iterator[Session]:
        """By start, after the file has been read."""
        if self._part_tokens is None:
            self._part_tokens = self._lengths()
        return in_order(self._requests())

    def _requests(self) -> Iterator[tuple[str, Recorded]]:
        last_s = weeks_s = 0.0
        for session, recorded in parsed(self._table, self._parse):
            if recorded.time_s < last_s:
                weeks_s += WEEK_S
            last_s = recorded.time_s
            yield session, recorded._replace(time_s=last_s + weeks_s)

    def _parse(self, line: Line) -> tuple[str, Recorded]:
        prompt_tokens = line.get("input_length", read_count)
        recorded = Recorded(
            line.get("timestamp", read_seconds),
            prompt_tokens,
            line.get("output_length", read_count),
            pieces=self._pieces(line, prompt_tokens),
        )
        return line.get("session_id", read_name), recorded

    def _pieces(self, line: Line, prompt_tokens: int) -> tuple[Piece, ...] | None:
        parts, lengths = line.said.get("hash_ids"), self._part_tokens
        if not isinstance(parts, dict):
            line.reject("hash_ids: this is no object of lists")
        if not lengths:
            return None
        of_parts, left = line.part(parts, "hash_ids"), prompt_tokens
        made: list[Piece] = []
        for name in parts:
            for part in of_parts.get(name, read_hash_ids):
                tokens = min(left, lengths.get(part, 0))
                if tokens:
                    made.append((f"part:{part}", tokens))
                    left -= tokens
        if left:
            made.append((f"line:{line.number}", left))
        return tuple(made)

    def _lengths(self) -> dict[int, int]:
        """Tokens of each part, from the files beside the trace."""
        lengths: dict[int, int] = {}
        for name in FILES:
            path = self._table.path.with_name(f"{name}.jsonl")
            table = table_of(path, self.skips) if path.is_file() else None
            if isinstance(table, JsonlTable):
                id_column = next((column for column in table.columns if column != "token_length"), "id")
                for number, said in table.objects():
                    line = Line(str(path), number, said)
                    if said.get("token_length") != 0:
                        lengths[line.get(id_column, lambda cell: read_hash_ids([cell])[0])] = line.get(
                            "token_length", read_count
                        )
        return lengths


def _open(opening: Opening) -> Sessions:
    return RagPulse(opening.objects())


def _recognises(columns: Mapping[str, Any]) -> bool:
    parts = columns.get("hash_ids")
    return isinstance(parts, dict) and not parts.keys().isdisjoint(PARTS)


FORMAT = Format("ragpulse", _recognises, _open)
