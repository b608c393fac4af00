"""Sessions drawn from distributions: chats whose users think, agents that call tools and send out sub-agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from sim.engine.request import Piece
from sim.scenario import specs
from sim.scenario.faults import session_lengths as lengths_of
from sim.traffic.delays import build_delays
from sim.traffic.lengths import Draw, Integers, build_lengths
from sim.traffic.sessions import Session, Turn, Wait
from sim.traffic.shared_prompts import SharedPrompts
from sim.traffic.streams import generator

STREAMS = ("turns", "branches", "branch_turns", "first_prompt_tokens", "prompt_tokens", "output_tokens")
DELAY_STREAMS = ("think_time", "tool_calls", "tool_delay", "tool_tokens")
COMPLETION: Final = "completion"


class _Request(NamedTuple):
    """What was drawn for one request; each quantity for every request, so that none depends on another's use."""

    new_tokens: int
    output_tokens: int
    think_s: float
    calls_tool: bool
    tool_s: float
    result_tokens: int


class _Shape(NamedTuple):
    """One session before its requests are drawn."""

    turns: int
    branches: tuple[int, ...]
    """Requests of each sub-agent; empty: it has none."""


class Conversations:
    """Makes the sessions of a scenario, many at a time."""

    def __init__(self, spec: specs.TrafficSpec, lengths: dict[str, Draw], seed: int) -> None:
        """``lengths``: how to draw each of the lengths a scenario gives, by the last part of its key path."""
        assert spec.sessions is not None, "the scenario's requests stand alone"
        sessions = spec.sessions
        self._fan_out = sessions.fan_out
        self._lengths = lengths
        self._cap = spec.max_output_tokens
        self._think = build_delays(sessions.think_time)
        tools = sessions.tool_calls
        self._tool_share = 0.0 if tools is None else tools.probability
        self._tool_delay = None if tools is None else build_delays(tools.delay)
        shared = spec.shared_prefix
        self._shared = None if shared is None else SharedPrompts(shared, lengths["first_prompt_tokens"], seed)
        self._generators = {stream: generator(seed, stream) for stream in (*STREAMS, *DELAY_STREAMS)}

    def sessions(self, times_s: Sequence[float], priorities: Sequence[int], first_id: int) -> Iterator[Session]:
        """The next sessions, one per time, numbered from ``first_id``."""
        count = len(times_s)
        shapes = self._shapes(count)
        firsts = self._draw("first_prompt_tokens", count)
        shared: list[tuple[Piece, ...]] = [()] * count
        segments: list[str] = []
        if self._shared is not None:
            pieces, repeated, names = self._shared.take(count)
            shared, segments = [(piece,) for piece in pieces], list(names)
            firsts = firsts if repeated is None else repeated
        requests = self._requests(sum(shape.turns + sum(shape.branches) for shape in shapes))
        for index, shape in enumerate(shapes):
            session_id = first_id + index
            own = segments[index] if segments else f"s:{session_id}"
            opening = (*shared[index], (own, int(firsts[index])))
            turns = self._turns(shape, opening, requests, priorities[index])
            yield Session(times_s[index], session_id, tuple(turns))

    def _shapes(self, count: int) -> list[_Shape]:
        turns = self._draw("turns", count).tolist()
        fan_out = self._fan_out
        if fan_out is None:
            return [_Shape(length, ()) for length in turns]
        branches = self._draw("branches", count).tolist()
        lengths = iter(self._draw("branch_turns", sum(branches)).tolist())
        fans = [tuple([next(lengths) for _ in range(fan)]) for fan in branches]
        return [_Shape(length, fan if length > fan_out.after else ()) for length, fan in zip(turns, fans, strict=True)]

    def _requests(self, count: int) -> Iterator[_Request]:
        new, output = self._draw("prompt_tokens", count), self._draw("output_tokens", count)
        if self._cap is not None:
            output = np.minimum(output, self._cap)
        calls = self._generators["tool_calls"].random(count) < self._tool_share
        tool_s, results = np.zeros(count), new
        if self._tool_delay is not None:
            tool_s = self._tool_delay(self._generators["tool_delay"], count)
        if "tool_tokens" in self._lengths:
            results = self._draw("tool_tokens", count)
        think_s = self._think(self._generators["think_time"], count)
        columns = (new, output, think_s, calls, tool_s, results)
        return map(_Request._make, zip(*(column.tolist() for column in columns), strict=True))

    def _draw(self, name: str, count: int) -> Integers:
        return self._lengths[name](self._generators[name], count)

    def _turns(
        self, shape: _Shape, opening: tuple[Piece, ...], requests: Iterator[_Request], priority: int
    ) -> list[Turn]:
        """The session's own turns; those of sub-agents stand between the turn that sends them out and the next."""
        turns: list[Turn] = []
        last: int | None = None
        joins: tuple[Wait, ...] = ()
        fan_out = self._fan_out
        for number in range(1, shape.turns + 1):
            request = next(requests)
            if last is None:
                tokens = sum(length for _, length in opening)
                turns.append(self._turn(request, tokens, priority)._replace(pieces=opening))
            elif joins:
                turns.append(self._turn(request, request.new_tokens, priority, last, joins))
                joins = ()
            elif request.calls_tool:
                waits = (Wait(last, COMPLETION, request.tool_s),)
                turns.append(self._turn(request, request.result_tokens, priority, last, waits))
            else:
                waits = (Wait(last, COMPLETION, request.think_s),)
                turns.append(self._turn(request, request.new_tokens, priority, last, waits))
            last = len(turns) - 1
            if fan_out is not None and shape.branches and number == fan_out.after:
                ends = [self._branch(turns, last, length, requests, priority) for length in shape.branches]
                joins = tuple(Wait(end, COMPLETION, 0.0) for end in ends) if fan_out.join else ()
        return turns

    def _branch(self, turns: list[Turn], parent: int, length: int, requests: Iterator[_Request], priority: int) -> int:
        """Add a sub-agent's turns; returns the index of its last."""
        last = parent
        for _ in range(length):
            request = next(requests)
            first = last == parent
            tokens = request.new_tokens if first else request.result_tokens
            waits = (Wait(last, COMPLETION, 0.0 if first else request.tool_s),)
            turns.append(self._turn(request, tokens, priority, last, waits))
            last = len(turns) - 1
        return last

    def _turn(
        self,
        request: _Request,
        new_tokens: int,
        priority: int,
        extends: int | None = None,
        waits: tuple[Wait, ...] = (),
    ) -> Turn:
        cap = request.output_tokens if self._cap is None else self._cap
        return Turn(new_tokens, request.output_tokens, cap, extends=extends, waits=waits, priority=priority)


NAMES = {"tool_calls.tokens": "tool_tokens", "fan_out.branches": "branches", "fan_out.turns": "branch_turns"}
"""Streams of lengths whose keys' last parts alone do not tell them apart."""


def session_lengths(spec: specs.SessionsSpec, base_dir: Path, prompt_tokens: Draw) -> dict[str, Draw]:
    """How to draw the lengths that only sessions have, by the names of their streams."""
    given = {
        NAMES.get(path, path): build_lengths(lengths, base_dir, f"traffic.sessions.{path}")
        for path, lengths in lengths_of(spec)
    }
    return {"first_prompt_tokens": prompt_tokens, **given}
