"""``sim traffic``: what a load is made of, before anything is simulated. One pass in bounded memory; of prompts that
share pieces, each different piece is remembered once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sim.engine.request import Piece
from sim.errors import Problem, ScenarioError
from sim.results.loads import Description, Load, Seen, Values
from sim.scenario import load_scenario, specs
from sim.scenario.load import with_lenient_traces
from sim.scenario.quantities import PositiveSeconds
from sim.traffic import Traffic, open_traffic
from sim.traffic.sessions import planned_prompts, planned_tokens
from sim.traffic.skips import skipped

TRACE_ENDINGS = (".csv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz", ".tar.gz", ".tgz")
_BLOCK = 8192


class Prefixes:
    """Tokens at the beginning of each prompt that an earlier prompt had too: what an infinite cache would hit."""

    def __init__(self) -> None:
        self._longest: dict[tuple[int, str], int] = {}
        self._nodes: dict[tuple[int, str, int], int] = {}

    def reused(self, prompt: tuple[Piece, ...] | None) -> int:
        """Of this prompt, which is remembered."""
        node, found, shares = 0, 0, True
        for segment, tokens in prompt or ():
            longest = self._longest.get((node, segment), 0)
            found += min(longest, tokens) if shares else 0
            shares = shares and longest >= tokens
            if tokens > longest:
                self._longest[node, segment] = tokens
            node = self._nodes.setdefault((node, segment, tokens), len(self._nodes) + 1)
        return found


def describe(traffic: Traffic, names: Iterable[str] = (), requests: int | None = None) -> Load:
    """Read a load to its end, or its first ``requests``; ``names``: of its classes."""
    clients = traffic.closed_concurrency
    timed = clients is None and not traffic.at_once
    load = Load(Description(), {name: Description() for name in names}, Values(), timed, clients)
    seen = _of_sessions(traffic, load.turns) if traffic.in_sessions else _alone(traffic)
    limited = islice(seen, requests)
    while block := list(islice(limited, _BLOCK)):
        load.everything.add(block)
        for index, each in enumerate(load.classes.values()):
            each.add(row for row in block if row.class_index == index)
    return load._replace(trace=skipped(traffic.skips))


def _alone(traffic: Traffic) -> Iterator[Seen]:
    prefixes = Prefixes()
    for arrival in traffic:
        reused = prefixes.reused(arrival.prompt) if arrival.prompt is not None else 0
        yield Seen(arrival.time_s, arrival.prompt_tokens, arrival.output_tokens, arrival.class_index, reused)


def _of_sessions(traffic: Traffic, turns: Values) -> Iterator[Seen]:
    """Turns as planned, session after session. Only the session's start has a time."""
    prefixes = Prefixes()
    for session in traffic.sessions():
        turns.add(np.array([len(session.turns)]))
        prompts = planned_prompts(session)
        for index, ((prompt, output), pieces) in enumerate(zip(planned_tokens(session), prompts, strict=True)):
            time_s = session.time_s if index == 0 else None
            said = prompt - session.turns[index].new_tokens  # earlier answers too, which no prompt had before
            yield Seen(time_s, prompt, output, session.class_index, max(said, prefixes.reused(pieces)))


def describe_file(
    source: str,
    *,
    overrides: dict[str, Any] | None = None,
    seed: int | None = None,
    lenient: bool = False,
    requests: int | None = None,
    duration: str | float | None = None,
) -> Load:
    """Describe a scenario, or a trace file (or folder) whose format its columns tell. ``lenient``: skip and count the
    lines of a trace that cannot be read.

    Raises ScenarioError and TraceError as a run would.
    """
    bounds = {} if duration is None else {"traffic.duration": duration}
    if source.lower().endswith(TRACE_ENDINGS) or Path(source).is_dir():
        if overrides:
            problem = Problem("--set", None, next(iter(overrides)), "a trace has no keys", "write a scenario around it")
            raise ScenarioError([problem])
        path = Path(source)
        arrivals = specs.Trace(process="trace", path=str(path.resolve()), lenient=lenient)
        spec, base_dir, seed = specs.TrafficSpec(arrivals=arrivals, duration=_seconds(duration)), path.parent, seed or 0
    else:
        loaded = load_scenario(source, overrides={**(overrides or {}), **bounds}, seed=seed)
        if lenient:
            loaded = with_lenient_traces(loaded)
        spec, base_dir, seed = loaded.spec.traffic, loaded.base_dir, loaded.spec.seed
    return describe(open_traffic(spec, base_dir, seed), spec.classes or (), requests)


def _seconds(duration: str | float | None) -> float | None:
    """As a scenario would read it."""
    try:
        return None if duration is None else TypeAdapter(PositiveSeconds).validate_python(duration)
    except ValidationError as error:
        raise ScenarioError([Problem("--duration", None, "", str(duration), "give a time, such as 10 min")]) from error
