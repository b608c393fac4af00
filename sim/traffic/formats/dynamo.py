"""Dynamo's request traces (``dynamo.request.trace.v1``): JSONL of events, of which ``request_end`` has a request with
its times (milliseconds of a clock), lengths and the hashes of its blocks.

Known from github.com/ai-dynamo/dynamo. Requests without an ``agent_context`` are sessions of one turn. An agent and
those who name it as their parent are one session; what waits for what comes from the times (``graph.py``), and where a
``tool_end`` says that a child was waited for (``execution_mode: blocking``), from that. The file is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sim.engine.request import Piece
from sim.traffic.cells import read_clock_ms, read_count, read_hash_ids, read_name
from sim.traffic.formats.base import Format, Opening, Sessions
from sim.traffic.formats.graph import Call, turns
from sim.traffic.formats.lines import Line, parsed, seconds_from_ms
from sim.traffic.hash_blocks import fault, pieces
from sim.traffic.sessions import Session
from sim.traffic.tables import JsonlTable

SCHEMA = "dynamo.request.trace.v1"


class _Request(NamedTuple):
    name: str
    agent: str
    parent: str | None
    received_ns: int
    took_s: float
    prompt_tokens: int
    output_tokens: int
    prompt: tuple[Piece, ...] | None


class _Join(NamedTuple):
    """A request that waited for an agent."""

    request: str
    agent: str


class Dynamo:
    """Sessions of agents with all they sent out."""

    def __init__(self, table: JsonlTable, block_tokens: int | None) -> None:
        self.skips = table.skips
        self._table = table
        self._block_tokens = block_tokens

    def sessions(self) -> Iterator[Session]:
        """By start, counted from the first."""
        requests: list[_Request] = []
        joins: dict[str, list[str]] = {}
        for event in parsed(self._table, self._parse):
            if isinstance(event, _Request):
                requests.append(event)
            elif event is not None:
                joins.setdefault(event.request, []).append(event.agent)
        if not requests:
            self._table.reject(None, "there is no request", "give lines of event_type request_end")
        requests.sort(key=lambda request: request.received_ns)
        parents = {request.agent: request.parent for request in requests}
        trees: dict[str, list[_Request]] = {}
        for request in requests:
            trees.setdefault(_root(request.agent, parents), []).append(request)
        first_ns = requests[0].received_ns
        for index, tree in enumerate(trees.values()):
            start_ns = tree[0].received_ns
            lanes = {agent: lane for lane, agent in enumerate(dict.fromkeys(request.agent for request in tree))}
            calls = [_call(request, start_ns, lanes, joins.get(request.name, [])) for request in tree]
            above = {lane: lanes.get(parents[agent] or "") for agent, lane in lanes.items()}
            yield Session((start_ns - first_ns) / 1e9, index, turns(calls, above))

    def _parse(self, line: Line) -> _Request | _Join | None:
        """None: an event that is neither."""
        match line.said.get("event_type"):
            case "request_end":
                return self._request(line)
            case "tool_end":
                return _join(line)
        return None

    def _request(self, line: Line) -> _Request:
        request = line.part(line.get("request", _object), "request")
        replay = request.part(request.get("replay", _object), "replay")
        context = line.part(line.maybe("agent_context", _object, {}), "agent_context")
        name, prompt_tokens = request.get("request_id", read_name), replay.get("input_length", read_count)
        ids = replay.maybe("input_sequence_hashes", read_hash_ids, None)
        block_tokens = self._block_tokens or replay.maybe("trace_block_size", read_count, 0)
        prompt = None
        if ids and block_tokens:
            if problem := fault(prompt_tokens, ids, block_tokens):
                replay.reject(f"input_sequence_hashes: {problem}")
            prompt = pieces(prompt_tokens, ids, f"line:{line.number}", block_tokens)
        return _Request(
            name,
            context.maybe("session_id", read_name, f"alone:{line.number}"),
            context.maybe("parent_session_id", read_name, None),
            request.get("request_received_ms", read_clock_ms),
            request.maybe("total_time_ms", seconds_from_ms, 0.0),
            prompt_tokens,
            request.get("output_tokens", read_count),
            prompt,
        )


def _object(cell: object) -> Mapping[str, Any]:
    if isinstance(cell, dict):
        return cell
    raise ValueError("this is no object")


def _join(line: Line) -> _Join | None:
    tool = line.said.get("tool")
    for said in tool.values() if isinstance(tool, dict) else ():
        if isinstance(said, dict) and said.get("execution_mode") == "blocking":
            call = line.part(said, "tool")
            return _Join(call.get("consumer_request_id", read_name), call.get("child_session_id", read_name))
    return None


def _root(agent: str, parents: Mapping[str, str | None]) -> str:
    """The topmost of those it comes from that the trace knows."""
    seen = {agent}
    while (parent := parents.get(agent)) is not None and parent in parents and parent not in seen:
        seen.add(parent)
        agent = parent
    return agent


def _call(request: _Request, start_ns: int, lanes: Mapping[str, int], joined: list[str]) -> Call:
    sent_s = (request.received_ns - start_ns) / 1e9
    joins = tuple(lanes[agent] for agent in joined if agent in lanes)
    lane = lanes[request.agent]
    took_s = request.took_s
    return Call(sent_s, sent_s + took_s, request.prompt_tokens, request.output_tokens, request.prompt, lane, joins)


def _open(opening: Opening) -> Sessions:
    return Dynamo(opening.objects(), opening.spec.block_tokens)


def _recognises(columns: Mapping[str, Any]) -> bool:
    return columns.get("schema") == SCHEMA or "event_type" in columns


FORMAT = Format("dynamo", _recognises, _open)
