"""The stream of requests a scenario describes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.engine.request import Piece
from sim.scenario import specs
from sim.scenario.faults import check
from sim.traffic import mooncake, protocols
from sim.traffic.arrivals import Block, Integers, Source, build_process
from sim.traffic.lengths import Draw, build_lengths
from sim.traffic.streams import generator
from sim.traffic.traces import Trace, TraceSource, open_trace

BLOCK_REQUESTS = 8192
COLUMNS = frozenset({"prompt_tokens", "output_tokens", "priority", "hash_ids"})
STREAMS = ("prompt_tokens", "output_tokens", "shared_prefix", "priority")


class Arrival(NamedTuple):
    """One request as it is sent. ``max_output_tokens`` is the cap the engine knows; the output never exceeds it."""

    index: int  # type: ignore[assignment]  # the field's name; nobody searches an arrival for a value
    time_s: float
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: int
    prompt: tuple[Piece, ...] | None


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
        self._trace = self._open_trace(base_dir)

    @property
    def closed_concurrency(self) -> int | None:
        """Clients of a closed loop, each of which waits for its answer; None where arrivals have times."""
        arrivals = self._arrivals
        if isinstance(arrivals, specs.Guidellm) and arrivals.profile == "concurrent":
            return arrivals.streams
        return arrivals.concurrency if isinstance(arrivals, specs.Closed) else None

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
        """Take blocks until the load ends."""
        source, draws = self._source(), Draws(self._spec, self._lengths, self._seed)
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

    def _open_trace(self, base_dir: Path) -> Trace | None:
        if not isinstance(self._spec.arrivals, specs.Trace):
            return None
        stated = self._lengths.keys() | ({"priority"} if self._spec.priorities else set())
        if "prompt_tokens" in stated:
            stated |= {"hash_ids"}
        return open_trace(self._spec.arrivals, base_dir, frozenset(COLUMNS - stated))

    def _source(self) -> Source:
        arrivals, draws = self._arrivals, generator(self._seed, "arrivals")
        if self._trace is not None and isinstance(arrivals, specs.Trace):
            return TraceSource(self._trace, arrivals.time_scale, self._spec.duration)
        return protocols.build_protocol(arrivals, self._spec.requests, draws) or build_process(arrivals, draws)


class Draws:
    """Everything of a request but its time, each quantity from its own random stream."""

    def __init__(self, spec: specs.TrafficSpec, lengths: dict[str, Draw], seed: int) -> None:
        self._lengths = lengths
        self._cap = spec.max_output_tokens
        self._shared = spec.shared_prefix
        weights = sorted((spec.priorities or {}).items())
        self._priorities = np.array([value for value, _ in weights], dtype=np.int64)
        shares = np.array([weight for _, weight in weights])
        self._bounds = np.cumsum(shares / shares.max(initial=1e-300))
        self._generators = {stream: generator(seed, stream) for stream in STREAMS}
        self._repeated: RepeatedPrompts | None = None
        if self._shared is not None and self._shared.prompts_per_group is not None:
            self._repeated = RepeatedPrompts(self._shared, self._lengths["prompt_tokens"], self._generators)

    def arrivals(self, block: Block, count: int, first: int) -> Iterator[Arrival]:
        """The first ``count`` of a block, numbered from ``first``."""
        own = self._tokens("prompt_tokens", block.prompt_tokens, count)
        output = self._tokens("output_tokens", block.output_tokens, count)
        if self._cap is not None:
            output = np.minimum(output, self._cap)
        outputs = output.tolist()
        index = range(first, first + count)
        prompts, prompt = self._prompts(own, block.hash_ids, index)
        fields = zip(
            index,
            block.time_s[:count].tolist(),
            prompts,
            outputs,
            outputs if self._cap is None else repeat(self._cap),
            self._priority(block.priority, count),
            prompt,
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
        self, own: Integers, hash_ids: Sequence[array[int]] | None, index: range
    ) -> tuple[list[int], Iterable[tuple[Piece, ...] | None]]:
        """Prompt lengths, and the pieces of each prompt where some are shared."""
        if self._repeated is not None:
            return self._repeated.prompts(index)
        if self._shared is None and hash_ids is None:
            return own.tolist(), repeat(None)
        names = (f"p:{i}" for i in index)
        pieces: Iterable[tuple[Piece, ...]]
        if hash_ids is None:
            pieces = (((name, tokens),) for name, tokens in zip(names, own.tolist(), strict=True))
        else:
            pieces = map(mooncake.pieces, own.tolist(), hash_ids, names)  # a duration may end the block early
        if self._shared is None:
            return own.tolist(), pieces
        tokens = self._shared.tokens
        groups = self._generators["shared_prefix"].integers(self._shared.groups, size=len(own)).tolist()
        return (own + tokens).tolist(), (
            ((f"shared:{group}", tokens), *rest) for group, rest in zip(groups, pieces, strict=True)
        )

    def _priority(self, column: Integers | None, count: int) -> Iterable[int]:
        if len(self._priorities):
            drawn = self._generators["priority"].random(count) * self._bounds[-1]
            column = self._priorities[np.searchsorted(self._bounds[:-1], drawn, side="right")]
        if column is None:
            return repeat(0)
        priorities: list[int] = column[:count].tolist()
        return priorities


class RepeatedPrompts:
    """A fixed set of prompts, of groups that begin alike, sent in one shuffled order over and over."""

    def __init__(self, shared: specs.SharedPrefix, lengths: Draw, generators: dict[str, np.random.Generator]) -> None:
        count = shared.groups * (shared.prompts_per_group or 1)
        own = lengths(generators["prompt_tokens"], count).tolist()
        order = generators["shared_prefix"].permutation(count).tolist()
        self._tokens = [shared.tokens + own[prompt] for prompt in order]
        self._pieces = [
            ((f"shared:{prompt % shared.groups}", shared.tokens), (f"repeated:{prompt}", own[prompt]))
            for prompt in order
        ]

    def prompts(self, index: range) -> tuple[list[int], Iterable[tuple[Piece, ...] | None]]:
        """Lengths and pieces of the requests of these numbers."""
        places = [number % len(self._tokens) for number in index]
        return [self._tokens[place] for place in places], [self._pieces[place] for place in places]


def open_traffic(spec: specs.TrafficSpec, base_dir: Path, seed: int) -> Traffic:
    """The load of a scenario; relative paths in it start at ``base_dir``.

    Raises ScenarioError where the spec asks for the impossible or a file is missing, TraceError where a file's header
    or a column of lengths cannot be read; iterating raises TraceError at a bad line of a trace.
    """
    return Traffic(spec, base_dir, seed)
