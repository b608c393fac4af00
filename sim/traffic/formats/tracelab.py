"""TraceLab: rounds of coding agents, JSONL of one request per line.

Found at github.com/uw-syfi/TraceLab. A round has ``session_id``, ``round_index``, ``input_tokens_total``,
``prefix_tokens`` (that the provider's cache had), ``output_tokens``, and the times of its events and tools. A prompt
begins with so many tokens of the prompt before it; the rest, and all of a session's first prompt, is its own. A round
is sent when the answer before it is complete and then as long again as the tools or the user took: until its first
event and the last result of the tools before it. The file is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sim.engine.request import Piece
from sim.traffic.cells import read_clock_ns, read_count, read_name, read_whole
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.lines import Line, parsed
from sim.traffic.sessions import Session, Turn, Wait
from sim.traffic.tables import JsonlTable


class _Round(NamedTuple):
    session: str
    number: int
    prompt_tokens: int
    prefix_tokens: int
    output_tokens: int
    first_event_ns: int
    last_event_ns: int
    results_ns: int
    """When the last tool's result came; that of the last event where there is none."""


class TraceLab:
    """Sessions of rounds."""

    def __init__(self, table: JsonlTable) -> None:
        self.skips = table.skips
        self._table = table

    def sessions(self) -> Iterator[Session]:
        """By start, counted from the first."""
        by_session: dict[str, list[_Round]] = {}
        for one in parsed(self._table, _round):
            by_session.setdefault(one.session, []).append(one)
        for rounds in by_session.values():
            rounds.sort(key=lambda one: one.number)
        order = sorted(by_session.items(), key=lambda named: named[1][0].first_event_ns)
        first_ns = order[0][1][0].first_event_ns
        for index, (name, rounds) in enumerate(order):
            yield Session((rounds[0].first_event_ns - first_ns) / 1e9, index, _turns(name, rounds))


def _turns(name: str, rounds: list[_Round]) -> tuple[Turn, ...]:
    made: list[Turn] = []
    prompt: tuple[Piece, ...] = ()
    before: _Round | None = None
    for place, one in enumerate(rounds):
        shared = _cut(prompt, min(one.prefix_tokens, one.prompt_tokens - 1))
        own = one.prompt_tokens - sum(tokens for _, tokens in shared)
        prompt = (*shared, (f"{name}:{place}", own))
        waits: tuple[Wait, ...] = ()
        if before is not None:
            sent_ns = max(one.first_event_ns, before.results_ns)
            waits = (Wait(place - 1, "completion", max(0, sent_ns - before.last_event_ns) / 1e9),)
        made.append(Turn(one.prompt_tokens, one.output_tokens, one.output_tokens, pieces=prompt, waits=waits))
        before = one
    return tuple(made)


def _cut(prompt: tuple[Piece, ...], tokens: int) -> tuple[Piece, ...]:
    """Its first tokens."""
    made = []
    for segment, length in prompt:
        kept = min(length, tokens)
        if kept:
            made.append((segment, kept))
        tokens -= kept
    return tuple(made)


def _round(line: Line) -> _Round:
    events = [part.get("timestamp", read_clock_ns) for part in line.parts("timing_events")]
    results = [
        part.get("result_at", read_clock_ns) for part in line.parts("tools", empty=True) if part.said.get("result_at")
    ]
    return _Round(
        line.get("session_id", read_name),
        line.get("round_index", read_whole),
        line.get("input_tokens_total", read_count),
        line.maybe("prefix_tokens", read_whole, 0),
        line.get("output_tokens", read_count),
        min(events),
        max(events),
        max(results, default=max(events)),
    )


def _open(opening: Opening) -> Sessions:
    return TraceLab(opening.objects())


def _recognises(columns: Mapping[str, Any]) -> bool:
    return {"round_index", "input_tokens_total", "timing_events"} <= columns.keys()


FORMAT = Format("tracelab", _recognises, _open)
