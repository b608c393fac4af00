"""The stream of requests a scenario describes: each on its own, or in sessions.

Where requests follow one another (``Traffic.in_sessions``), ``Traffic.sessions`` hands out ``Session`` objects in order
of their start instead of arrivals. They are drawn (``traffic.sessions``), or read from a trace; either way the fleet's
clients live them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.engine.request import Piece
from sim.scenario import specs
from sim.scenario.faults import check
from sim.scenario.trace_faults import check_whole
from sim.traffic import protocols
from sim.traffic.arrivals import Block, Integers, Source, build_process
from sim.traffic.conversations import Conversations, session_lengths
from sim.traffic.lengths import Draw, build_lengths, build_pairs
from sim.traffic.priorities import Priorities
from sim.traffic.sessions import Session, planned_tokens
from sim.traffic.shared_prompts import SharedPrompts
from sim.traffic.skips import Skips
from sim.traffic.streams import generator
from sim.traffic.traces import Trace, TracedSessions, TraceSource, open_trace

BLOCK_REQUESTS = 8192
COLUMNS = frozenset({"prompt_tokens", "output_tokens", "priority", "hash_ids"})
STREAMS = ("prompt_tokens", "output_tokens", "priority")
BLOCK_SESSIONS = 512


class Arrival(NamedTuple):
    """One request as it is sent. ``max_output_tokens`` is the cap the engine knows; the output never exceeds it."""

    index: int  # type: ignore[assignment]  # the field's name; nobody searches an arrival for a value
    time_s: float
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: int
    prompt: tuple[Piece, ...] | None
    class_index: int = 0
    """Which of the scenario's traffic classes it is of."""


class Traffic:
    """Arrivals in order of time, made as they are asked for; iterating again starts anew with the same ones.

    A quantity has its own random stream, and the n-th request takes the n-th value of each: more requests, or another
    distribution of one quantity, leave all else as it was. What the scenario says of lengths and priorities goes
    before what a trace says; with other prompt lengths, what a trace says its prompts share is void.
    """

    def __init__(
        self, spec: specs.TrafficSpec, base_dir: Path, seed: int, block_requests: int = BLOCK_REQUESTS
    ) -> None:
        check(spec)
        self._spec = spec
        self._arrivals = protocols.plain(spec.arrivals)
        self._seed = seed
        self._block_requests = block_requests
        self._lengths = {
            name: build_lengths(lengths, base_dir, f"traffic.{name}")
            for name, lengths in (("prompt_tokens", spec.prompt_tokens), ("output_tokens", spec.output_tokens))
            if lengths is not None
        }
        self._skipped_pairs: Skips | None = None
        if spec.lengths is not None:
            pairs, self._skipped_pairs = build_pairs(spec.lengths, base_dir)
            self._lengths |= pairs
        self._trace = self._open_trace(base_dir)
        if isinstance(self._trace, TracedSessions):
            check_whole(spec)
        if spec.sessions is not None:
            self._lengths |= session_lengths(spec.sessions, base_dir, self._lengths["prompt_tokens"])

    @property
    def in_sessions(self) -> bool:
        """Requests follow one another: ``sessions`` has them. Else iterate over the arrivals."""
        return self._spec.sessions is not None or isinstance(self._trace, TracedSessions)

    @property
    def counts_sessions(self) -> bool:
        """A closed loop is of sessions, not of their requests."""
        arrivals = self._arrivals
        if isinstance(arrivals, specs.Trace):
            return arrivals.concurrency is not None
        return isinstance(arrivals, specs.Closed) and arrivals.of == "sessions"

    @property
    def closed_concurrency(self) -> int | None:
        """Clients of a closed loop, each of which waits for its answer; None where arrivals have times."""
        arrivals = self._arrivals
        if isinstance(arrivals, specs.Guidellm) and arrivals.profile == "concurrent":
            return arrivals.streams
        if isinstance(arrivals, specs.Trace):
            return arrivals.concurrency
        return arrivals.concurrency if isinstance(arrivals, specs.Closed) else None

    @property
    def skips(self) -> tuple[Skips, ...]:
        """What the latest reading of each trace left out, and rows of lengths."""
        each = (None if self._trace is None else self._trace.skips, self._skipped_pairs)
        return tuple(skips for skips in each if skips is not None)

    @property
    def at_once(self) -> bool:
        """Everything is due at time 0."""
        return isinstance(self._arrivals, specs.Burst)

    @property
    def max_concurrency(self) -> int | None:
        """Requests in flight at most; None without a limit."""
        if self.closed_concurrency is not None:
            return None
        arrivals = self._arrivals
        return (
            arrivals.concurrency if isinstance(arrivals, specs.Aiperf) else getattr(arrivals, "max_concurrency", None)
        )

    @property
    def skips_full_moments(self) -> bool:
        """A moment at which all clients are busy passes; the request leaves at a later one (aiperf)."""
        return isinstance(self._arrivals, specs.Aiperf) and self._arrivals.concurrency is not None

    def moments_s(self) -> Iterator[float]:
        """The times of the arrival process, without end and whoever leaves at them."""
        source = self._source()
        while True:
            yield from source.take(self._block_requests).time_s.tolist()

    @property
    def limit(self) -> int | None:
        """Requests in flight at most, by whichever of the two; None: nobody waits for answers."""
        return self.closed_concurrency or self.max_concurrency

    @property
    def total(self) -> int | None:
        """How many requests there will be, where that is known beforehand."""
        known = self._spec.duration is None and self._trace is None
        return self._spec.requests if known else None

    @property
    def stops_at_s(self) -> float | None:
        """No request is sent at this time or later."""
        return self._spec.duration

    def __iter__(self) -> Iterator[Arrival]:
        """Take blocks until the load ends. Requests that follow one another have no times beforehand."""
        assert not self.in_sessions, "sessions are asked for by their method"
        source, draws = self._source(), self.draws()
        limit, duration_s, made = self._spec.requests, self._spec.duration, 0
        while limit is None or made < limit:
            wanted = self._block_requests if limit is None else min(limit - made, self._block_requests)
            block = source.take(wanted)
            count = len(block.time_s)
            if duration_s is not None:
                count = int(np.searchsorted(block.time_s, duration_s, side="left"))
            yield from draws.arrivals(block, count, made)
            made += count
            if count < wanted:
                return

    def sessions(self) -> Iterator[Session]:
        """Sessions in order of their start until the load ends; the last is cut where ``requests`` is reached."""
        left, duration_s = self._spec.requests, self._spec.duration
        for session in self._all_sessions():
            if left == 0 or (duration_s is not None and session.time_s >= duration_s):
                return
            if left is not None:
                session = session._replace(turns=session.turns[:left])
                left -= len(session.turns)
            yield session

    def planned_tokens(self) -> Iterator[tuple[int, int]]:
        """Prompt and output of each request, if every answer is as long as planned."""
        if self.in_sessions:
            for session in self.sessions():
                yield from planned_tokens(session)
        else:
            for arrival in self:
                yield arrival.prompt_tokens, arrival.output_tokens

    def _all_sessions(self) -> Iterator[Session]:
        arrivals, cap = self._spec.arrivals, self._spec.max_output_tokens
        if isinstance(self._trace, TracedSessions) and isinstance(arrivals, specs.Trace):
            for session in self._trace.sessions():
                yield session if cap is None else session.capped(cap)
            return
        source, maker = self._source(), Conversations(self._spec, self._lengths, self._seed)
        priorities, made = Priorities(self._spec, self._seed), 0
        while True:
            times_s = source.take(BLOCK_SESSIONS).time_s.tolist()
            if not times_s:
                return
            yield from maker.sessions(times_s, priorities.take(len(times_s)), made)
            made += len(times_s)

    def _open_trace(self, base_dir: Path) -> Trace | TracedSessions | None:
        if not isinstance(self._spec.arrivals, specs.Trace):
            return None
        return open_trace(self._spec.arrivals, base_dir, COLUMNS - self.stated, self._seed)

    @property
    def stated(self) -> frozenset[str]:
        """What the scenario says of requests, whatever a trace does."""
        stated = self._lengths.keys() | ({"priority"} if self._spec.priorities else set())
        return frozenset(stated | {"hash_ids"} if "prompt_tokens" in stated else stated)

    def draws(self) -> Draws:
        """Everything of the requests but their times, from the start."""
        return Draws(self._spec, self._lengths, self._seed)

    def _source(self) -> Source:
        arrivals, draws = self._arrivals, generator(self._seed, "arrivals")
        if isinstance(self._trace, Trace) and isinstance(arrivals, specs.Trace):
            return TraceSource(self._trace, self._spec.duration)
        return protocols.build_protocol(arrivals, self._spec.requests, draws) or build_process(arrivals, draws)


class Draws:
    """Everything of a request but its time, each quantity from its own random stream."""

    def __init__(self, spec: specs.TrafficSpec, lengths: dict[str, Draw], seed: int) -> None:
        self._lengths = lengths
        self._cap = spec.max_output_tokens
        shared = spec.shared_prefix
        self._shared = None if shared is None else SharedPrompts(shared, lengths.get("prompt_tokens"), seed)
        self._priorities = Priorities(spec, seed) if spec.priorities else None
        joint = {} if spec.lengths is None else dict.fromkeys(("prompt_tokens", "output_tokens"), "lengths")
        self._generators = {stream: generator(seed, joint.get(stream, stream)) for stream in STREAMS}

    def arrivals(self, block: Block, count: int, first: int) -> Iterator[Arrival]:
        """The first ``count`` of a block, numbered from ``first``."""
        own = self._tokens("prompt_tokens", block.prompt_tokens, count)
        output = self._tokens("output_tokens", block.output_tokens, count)
        if self._cap is not None:
            output = np.minimum(output, self._cap)
        outputs = output.tolist()
        index = range(first, first + count)
        prompts, prompt = self._prompts(own, block, index)
        fields = zip(
            index,
            block.time_s[:count].tolist(),
            prompts,
            outputs,
            outputs if self._cap is None else repeat(self._cap),
            self._priority(block.priority, count),
            prompt,
            repeat(0),
            strict=False,  # what does not vary repeats for ever
        )
        return map(partial(tuple.__new__, Arrival), fields)

    def _tokens(self, name: str, column: Integers | None, count: int) -> Integers:
        draw = self._lengths.get(name)
        if draw is not None:
            return draw(self._generators[name], count)
        assert column is not None, f"a trace without {name} has been refused"
        return column[:count]

    def _prompts(
        self, own: Integers, block: Block, index: range
    ) -> tuple[list[int], Iterable[tuple[Piece, ...] | None]]:
        """Prompt lengths, and the pieces of each prompt where some are shared."""
        hash_ids, blocks = block.hash_ids, block.blocks
        if self._shared is None and hash_ids is None:
            return own.tolist(), repeat(None)
        names = (f"p:{i}" for i in index)
        pieces: Iterable[tuple[Piece, ...]]
        if hash_ids is None or blocks is None:
            pieces = (((name, tokens),) for name, tokens in zip(names, own.tolist(), strict=True))
        else:
            recorded = zip(hash_ids, names, strict=False)  # a duration may end the block early
            pieces = blocks.prompts(recorded)
        if self._shared is None:
            return own.tolist(), pieces
        shared, repeated, segments = self._shared.take(len(index))
        if repeated is not None:
            own = repeated
            pieces = (((name, tokens),) for name, tokens in zip(segments, own.tolist(), strict=True))
        prompts = ((first, *rest) for first, rest in zip(shared, pieces, strict=True))
        return (own + self._shared.tokens).tolist(), prompts

    def _priority(self, column: Integers | None, count: int) -> Iterable[int]:
        if self._priorities is not None:
            return self._priorities.take(count)
        if column is None:
            return repeat(0)
        priorities: list[int] = column[:count].tolist()
        return priorities


def open_traffic(spec: specs.TrafficSpec, base_dir: Path, seed: int) -> Traffic:
    """The load of a scenario; relative paths in it start at ``base_dir``.

    Raises ScenarioError where the spec asks for the impossible or a file is missing, TraceError where a file's header
    or a column of lengths cannot be read; iterating raises TraceError at a bad line of a trace.
    """
    if spec.classes is not None:
        from sim.traffic.classes import ClassTraffic

        return ClassTraffic(spec, base_dir, seed)
    return Traffic(spec, base_dir, seed)
