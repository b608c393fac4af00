"""Traffic of several classes: each is a traffic of its own, with random streams of its own, and their requests are
merged in order of time. Another class leaves the requests of the others as they were, but for shares of common
arrivals, which are drawn anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from sim.errors import Problem, ScenarioError
from sim.scenario import specs
from sim.scenario.class_faults import class_traffic
from sim.scenario.faults import check
from sim.scenario.trace_faults import check_alone
from sim.traffic.arrivals import Block
from sim.traffic.load import BLOCK_REQUESTS, COLUMNS, Arrival, Traffic
from sim.traffic.skips import Skips
from sim.traffic.streams import generator
from sim.traffic.traces import Trace, TracedSessions, open_trace


class ClassTraffic(Traffic):
    """Arrivals of all classes, numbered in order; at the same instant the class that is named first goes first.

    Prompts share nothing across classes.
    """

    def __init__(
        self, spec: specs.TrafficSpec, base_dir: Path, seed: int, block_requests: int = BLOCK_REQUESTS
    ) -> None:
        check(spec)
        self._classes = spec.classes or {}
        self._each = [
            Traffic(class_traffic(spec, name), base_dir, class_seed(seed, name), block_requests)
            for name in self._classes
        ]
        check_alone([name for name, each in zip(self._classes, self._each, strict=True) if each.in_sessions])
        self._own = isinstance(spec.arrivals, specs.ByClass)
        self._of_trace = isinstance(spec.arrivals, specs.Trace)
        first = class_traffic(spec, next(iter(self._classes)))
        super().__init__(first, base_dir, seed, block_requests)

    @property
    def skips(self) -> tuple[Skips, ...]:
        """What the latest reading of each trace left out."""
        if self._of_trace:
            return super().skips
        return tuple(skips for each in self._each for skips in each.skips)

    def __iter__(self) -> Iterator[Arrival]:
        """Take from the classes until the load ends."""
        merged = self._merged() if self._own else self._traced() if self._of_trace else self._shared()
        for index, (code, arrival) in enumerate(islice(merged, self._spec.requests)):
            yield arrival._replace(index=index, class_index=code)

    def _merged(self) -> Iterator[tuple[int, Arrival]]:
        each = (self._requests(code, iter(traffic)) for code, traffic in enumerate(self._each))
        return heapq.merge(*each, key=lambda item: (item[1].time_s, item[0]))

    def _shared(self) -> Iterator[tuple[int, Arrival]]:
        """One process: who each arrival belongs to is drawn by the shares."""
        shares = np.array([each.share for each in self._classes.values()], dtype=float)
        bounds, drawn = np.cumsum(shares / shares.max()), generator(self._seed, "class")
        draws, made = [traffic.draws() for traffic in self._each], [0] * len(self._each)
        for block in self._blocks():
            codes = np.searchsorted(bounds[:-1], drawn.random(len(block.time_s)) * bounds[-1], side="right")
            requests = []
            for code, each in enumerate(draws):
                times_s = block.time_s[codes == code]
                arrivals = each.arrivals(Block(times_s), len(times_s), made[code])
                requests.append(self._requests(code, arrivals))
                made[code] += len(times_s)
            yield from (next(requests[code]) for code in codes.tolist())

    def _traced(self) -> Iterator[tuple[int, Arrival]]:
        """A trace that says of each request which class it is of."""
        draws, made = [traffic.draws() for traffic in self._each], [0] * len(self._each)
        source, left = self._source(), self._spec.requests
        while left is None or left > 0:
            wanted = self._block_requests if left is None else min(left, self._block_requests)
            block = source.take(wanted)
            codes = block.class_index
            assert codes is not None, "a trace without classes has been refused"
            requests = []
            for code, each in enumerate(draws):
                part = _part(block, codes == code)
                requests.append(self._requests(code, each.arrivals(part, len(part.time_s), made[code])))
                made[code] += len(part.time_s)
            yield from (next(requests[code]) for code in codes.tolist())
            if len(codes) < wanted:
                return
            left = None if left is None else left - wanted

    def _open_trace(self, base_dir: Path) -> Trace | TracedSessions | None:
        """The common one, with what not all classes say themselves."""
        if not self._of_trace or not isinstance(self._spec.arrivals, specs.Trace):
            return super()._open_trace(base_dir)
        stated = frozenset.intersection(*(each.stated for each in self._each))
        wanted = COLUMNS - stated - {"hash_ids"} | {"class_index"}
        trace = open_trace(self._spec.arrivals, base_dir, wanted, self._seed, tuple(self._classes))
        if isinstance(trace, Trace) and "class_index" not in trace.columns:
            problem, cure = "this trace does not say whose each request is", "give each class a trace of its own"
            raise ScenarioError([Problem("scenario", None, "traffic.arrivals.path", problem, cure)])
        return trace

    def _blocks(self) -> Iterator[Block]:
        """Of the common arrivals, cut where the load ends."""
        source, left, duration_s = self._source(), self._spec.requests, self._spec.duration
        while left is None or left > 0:
            wanted = self._block_requests if left is None else min(left, self._block_requests)
            times_s = source.take(wanted).time_s
            if duration_s is not None:
                times_s = times_s[: np.searchsorted(times_s, duration_s, side="left")]
            if len(times_s):
                yield Block(times_s)
            if len(times_s) < wanted:
                return
            left = None if left is None else left - wanted

    def _requests(self, code: int, arrivals: Iterator[Arrival]) -> Iterator[tuple[int, Arrival]]:
        name = list(self._classes)[code]
        return ((code, _named(name, arrival)) for arrival in arrivals)


def _part(block: Block, mask: np.ndarray) -> Block:
    """Some of its arrivals; a table of classes says nothing of blocks."""
    columns = (block.prompt_tokens, block.output_tokens, block.priority)
    return Block(block.time_s[mask], *(None if column is None else column[mask] for column in columns))


def _named(name: str, arrival: Arrival) -> Arrival:
    """The segments of a class have names of their own."""
    if arrival.prompt is None:
        return arrival
    return arrival._replace(prompt=tuple((f"{name}/{segment}", tokens) for segment, tokens in arrival.prompt))


def class_seed(seed: int, name: str) -> int:
    """The seed of a class's streams; it depends on the scenario's and on the class's name alone."""
    words = np.random.SeedSequence(seed, spawn_key=tuple(f"class {name}".encode())).generate_state(4)
    return sum(int(word) << (32 * place) for place, word in enumerate(words))
