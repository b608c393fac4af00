"""Mooncake's traces: JSONL of ``timestamp`` (milliseconds), ``input_length``, ``output_length`` and ``hash_ids``, one
per 512 tokens of the prompt (``block_tokens`` where it is another size).

Found at github.com/kvcache-ai/Mooncake, FAST25-release/traces (Qin et al., FAST 2025). With an infinite cache 37.4 % of
the conversation trace's prompt tokens are hits and 65.1 % of the synthetic one's; of their blocks, where a short last
one counts like any other, 36.6 % and 64.0 %: the 37 % and 64 % that are told of them. ``vllm bench serve``'s
``timed_trace`` reads the same lines, in blocks of its own size.

Where lines have a ``session_id`` they are turns of sessions with whole prompts, as Dynamo reads them;
``mooncake-delta`` has turns with new tokens only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.traffic.cells import read_clock_ms
from sim.traffic.formats.base import Format, Opening, RowTrace, Sessions
from sim.traffic.formats.mooncake_delta import MooncakeTurns
from sim.traffic.tables import JsonlTable

TIME = "timestamp"
FIELDS = {"prompt_tokens": "input_length", "output_tokens": "output_length", "hash_ids": "hash_ids"}


def _open(opening: Opening) -> RowTrace | Sessions:
    table = opening.columns()
    fields = (TIME, *FIELDS.values())
    missing = [name for name in fields if name not in table.columns]
    if missing:
        table.reject(1, f"no {' and no '.join(missing)}", f"give each line of the JSONL: {', '.join(fields)}")
    if "session_id" in table.columns and isinstance(table, JsonlTable):
        return MooncakeTurns(table, opening.block_tokens, delta=False)
    columns = {name: field for name, field in FIELDS.items() if name in opening.wanted}
    return RowTrace(table, TIME, columns, read_clock_ms, block_tokens=opening.block_tokens)


def _recognises(columns: Mapping[str, Any]) -> bool:
    """Nearly Mooncake's: without sessions, or by hash ids that are no list."""
    return {TIME, *FIELDS.values()} <= columns.keys() and "session_id" not in columns


FORMAT = Format("mooncake", _recognises, _open)
