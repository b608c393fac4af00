"""applied-compute: one agent's session per line, without a time: ``input_prompt_length``, then ``num_turns`` times an
answer (``assistant_response_length``), a tool that runs ``tool_call_latency`` seconds and its result
(``tool_call_output_length``), and at last ``final_assistant_response_length``.

Known from Dynamo's replay (github.com/ai-dynamo/dynamo). All sessions begin at time 0 unless the scenario gives
``rate`` or ``concurrency``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.traffic.cells import read_count, read_seconds
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.lines import Line, parsed, read_whole_list
from sim.traffic.sessions import Session, Turn, Wait
from sim.traffic.tables import JsonlTable

FIRST, ANSWERS, RESULTS = "input_prompt_length", "assistant_response_length", "tool_call_output_length"
LATENCIES, LAST = "tool_call_latency", "final_assistant_response_length"


class AppliedCompute:
    """Sessions, read as a stream."""

    def __init__(self, table: JsonlTable) -> None:
        self.skips = table.skips
        self._table = table

    def sessions(self) -> Iterator[Session]:
        """In the file's order, all at time 0."""
        for index, turns in enumerate(parsed(self._table, _turns)):
            yield Session(0.0, index, turns)


def _turns(line: Line) -> tuple[Turn, ...]:
    answers = line.get(ANSWERS, lambda cell: read_whole_list(cell, read_count))
    results = line.get(RESULTS, lambda cell: read_whole_list(cell, read_count))
    latencies_s = line.get(LATENCIES, lambda cell: read_whole_list(cell, read_seconds))
    calls = len(answers)
    for name, each in ((RESULTS, results), (LATENCIES, latencies_s)):
        if len(each) != calls:
            line.reject(f"{name}: {len(each)} for {calls} answers")
    if line.said.get("num_turns", calls) != calls:
        line.reject(f"num_turns: {line.said['num_turns']!r} for {calls} answers")
    new = [line.get(FIRST, read_count), *results]
    outputs = [*answers, line.get(LAST, read_count)]
    return tuple(
        Turn(
            tokens,
            output,
            output,
            extends=place - 1 if place else None,
            waits=(Wait(place - 1, "completion", latencies_s[place - 1]),) if place else (),
        )
        for place, (tokens, output) in enumerate(zip(new, outputs, strict=True))
    )


def _open(opening: Opening) -> Sessions:
    return AppliedCompute(opening.objects())


def _recognises(columns: Mapping[str, Any]) -> bool:
    return {FIRST, ANSWERS} <= columns.keys()


FORMAT = Format("applied-compute", _recognises, _open)
