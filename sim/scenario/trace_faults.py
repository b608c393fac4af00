"""What a trace must satisfy beyond the type of each key, and what cannot go with one whose requests form sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.errors import Problem, ScenarioError
from sim.scenario import specs

Fault = tuple[str, str, str]
LEAST_SCALE = 1e-6
WHOLE = ("prompt_tokens", "output_tokens", "lengths", "shared_prefix", "priorities")
"""Keys of the traffic that do not apply to recorded sessions."""


def trace_faults(arrivals: specs.Arrivals) -> Iterator[Fault]:
    """Everything wrong in a trace: key path below ``traffic``, problem, cure."""
    if not isinstance(arrivals, specs.Trace):
        return
    scale, start_s, end_s = arrivals.time_scale, arrivals.start, arrivals.end
    if not LEAST_SCALE <= scale <= 1 / LEAST_SCALE:
        cure = f"give a factor from {LEAST_SCALE:g} to {1 / LEAST_SCALE:g}"
        yield "arrivals.time_scale", f"time_scale={scale:g} is out of range", cure
    if end_s is not None and end_s <= start_s:
        yield "arrivals.end", f"end={end_s:g} s is not after start={start_s:g} s", "make it later, or start earlier"
    if arrivals.rate is not None and arrivals.concurrency is not None:
        yield "arrivals.rate", "arrivals have a rate, or wait for others to end", "give rate or concurrency"
    if arrivals.concurrency is not None and arrivals.max_concurrency is not None:
        problem = "arrivals are bounded by concurrency already"
        yield "arrivals.max_concurrency", problem, "leave it out, and lower concurrency"
    void = "rate" if arrivals.rate is not None else "concurrency" if arrivals.concurrency is not None else None
    changed = scale != 1 and arrivals.concurrency is not None
    if changed:
        yield "arrivals.time_scale", f"has no effect: {void} leaves no recorded times", "leave it out"


def check_whole(spec: specs.TrafficSpec) -> None:
    """Raise ScenarioError where the scenario would replace a part of recorded sessions."""
    cure = "leave it out; prompt_scale and output_scale of the arrivals change lengths"
    problems = [
        Problem("scenario", None, f"traffic.{key}", "has no effect: the trace's sessions are taken as recorded", cure)
        for key in WHOLE
        if getattr(spec, key) is not None
    ]
    if problems:
        raise ScenarioError(problems)


def check_alone(in_sessions: Sequence[str]) -> None:
    """Raise ScenarioError for classes whose requests do not stand alone."""
    problem, cure = "requests of classes stand alone, and this trace's form sessions", "use a trace without sessions"
    if in_sessions:
        raise ScenarioError(
            [Problem("scenario", None, f"traffic.classes.{name}.arrivals", problem, cure) for name in in_sessions]
        )
