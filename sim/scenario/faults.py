"""What a traffic spec must satisfy beyond the type of each key."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from sim.errors import Problem, ScenarioError
from sim.scenario import specs
from sim.scenario.class_faults import class_faults, class_traffic
from sim.scenario.lognormal import lognormal_sigma
from sim.scenario.protocol_faults import protocol_faults
from sim.scenario.trace_faults import trace_faults
from sim.scenario.varying_faults import LEAST_RATE_PER_S, varying_faults

SMALLEST_CV, LARGEST_CV = 1e-4, 1e3
MOST_PROMPTS = 10_000_000
"""Different whole prompts that may repeat."""

Fault = tuple[str, str, str]
"""Key path below ``traffic``, problem, cure."""


def check(spec: specs.TrafficSpec) -> None:
    """Raise ScenarioError with everything wrong in a traffic spec."""
    problems = [Problem("scenario", None, f"traffic.{path}", problem, cure) for path, problem, cure in faults(spec)]
    if problems:
        raise ScenarioError(problems)


def faults(spec: specs.TrafficSpec) -> Iterator[Fault]:
    """Everything wrong in a traffic spec, in the order of its keys."""
    yield from _arrivals(spec)
    yield from class_faults(spec)
    yield from varying_faults(spec.arrivals)
    yield from protocol_faults(spec)
    yield from _of_classes(spec) if spec.classes else _lengths(spec)
    yield from _shared_prefix(spec)
    yield from _sessions(spec)
    if spec.cancellation is not None:
        yield from _delay("cancellation.after", spec.cancellation.after)
    yield from _priorities(spec)


def _arrivals(spec: specs.TrafficSpec) -> Iterator[Fault]:
    arrivals = spec.arrivals
    if isinstance(arrivals, specs.Gamma):
        yield from _gamma(arrivals)
    if isinstance(arrivals, specs.Closed) and "of" in arrivals.model_fields_set and spec.sessions is None:
        yield "arrivals.of", "has no effect: every request is a session of its own", "leave it out, or add sessions"
    yield from trace_faults(arrivals)
    for name in ("rate", "ramp_up_start_rate", "ramp_up_end_rate"):
        rate = getattr(arrivals, name, None)
        if rate is not None and rate < LEAST_RATE_PER_S:
            cure = f"give at least {LEAST_RATE_PER_S:g} per second"
            yield f"arrivals.{name}", f"{name}={rate:g} is out of range", cure
    own = [each.arrivals for each in (spec.classes or {}).values()]
    all_traces = bool(own) and all(isinstance(each, specs.Trace) for each in own)
    ends_itself = (
        isinstance(arrivals, specs.Trace)
        or all_traces
        or (isinstance(arrivals, specs.InferencePerf) and arrivals.duration is not None)
    )
    if ends_itself or spec.requests is not None or isinstance(arrivals, specs.VllmBench):
        return
    if isinstance(arrivals, specs.Burst):
        yield "requests", "a burst has no size", "add requests: 1000"
    elif spec.duration is None:
        yield "requests", "the load never ends", "add requests: 1000, or duration: 10 min"


def _of_classes(spec: specs.TrafficSpec) -> Iterator[Fault]:
    """What is wrong with a class as a traffic of its own, where the class says it or ought to."""
    if spec.lengths is not None:
        yield "lengths", "classes have lengths of their own", "use prompt_tokens and output_tokens"
    for name, own in (spec.classes or {}).items():
        alone = class_traffic(spec, name)
        for path, problem, cure in (*_arrivals(alone), *varying_faults(alone.arrivals), *_lengths(alone)):
            key = path.partition(".")[0]
            if getattr(own, key, None) is not None or key in {"prompt_tokens", "output_tokens"}:
                yield f"classes.{name}.{path}", problem, cure
        if own.shared_prefix is not None:
            yield from ((f"classes.{name}.{path}", problem, cure) for path, problem, cure in _shared_prefix(alone))


def _gamma(arrivals: specs.Gamma) -> Iterator[Fault]:
    if (arrivals.cv is None) == (arrivals.burstiness is None):
        yield "arrivals.cv", "gamma needs either cv or burstiness (1 / cv^2)", "give exactly one of the two"
    elif arrivals.cv is not None and not SMALLEST_CV <= arrivals.cv <= LARGEST_CV:
        cure = f"give a cv from {SMALLEST_CV:g} to {LARGEST_CV:g}; process: constant has none"
        yield "arrivals.cv", f"cv={arrivals.cv:g} is out of range", cure
    elif arrivals.burstiness is not None and not LARGEST_CV**-2 <= arrivals.burstiness <= SMALLEST_CV**-2:
        cure = f"give a burstiness from {LARGEST_CV**-2:g} to {SMALLEST_CV**-2:g}; process: constant is the limit"
        yield "arrivals.burstiness", f"burstiness={arrivals.burstiness:g} is out of range", cure


def _lengths(spec: specs.TrafficSpec) -> Iterator[Fault]:
    for name, lengths in (("prompt_tokens", spec.prompt_tokens), ("output_tokens", spec.output_tokens)):
        if lengths is None:
            if not isinstance(spec.arrivals, specs.Trace) and spec.lengths is None:
                yield name, "missing", f"add {name}: 512, or a distribution"
            continue
        if spec.lengths is not None:
            yield "lengths", f"replaces {name}, which is given too", "leave out one of them"
        yield from _length(name, lengths)


def _length(name: str, lengths: specs.Lengths) -> Iterator[Fault]:
    if isinstance(lengths, specs.LogNormal):
        yield from _lognormal(name, lengths)
    if isinstance(lengths, specs.Uniform | specs.Normal | specs.LogNormal):
        yield from _range(name, lengths)


def _shared_prefix(spec: specs.TrafficSpec) -> Iterator[Fault]:
    shared = spec.shared_prefix
    if shared is None or shared.prompts_per_group is None:
        return
    if spec.prompt_tokens is None:
        cure = "add prompt_tokens: 512, or leave it out"
        yield "shared_prefix.prompts_per_group", "prompts that repeat have lengths of their own, not a trace's", cure
    if shared.groups * shared.prompts_per_group > MOST_PROMPTS:
        problem = f"{shared.groups:,} groups of {shared.prompts_per_group:,} prompts are too many"
        yield "shared_prefix.prompts_per_group", problem, f"use at most {MOST_PROMPTS // shared.groups:,}"


def _sessions(spec: specs.TrafficSpec) -> Iterator[Fault]:
    sessions = spec.sessions
    if sessions is None:
        return
    if spec.lengths is not None:
        yield "lengths", "the lengths of sessions' turns are drawn one by one", "use prompt_tokens and output_tokens"
    if isinstance(spec.arrivals, specs.Trace):
        yield "sessions", "a trace has its own requests", "leave it out, or use another process of arrivals"
    elif isinstance(spec.arrivals, specs.Protocol):
        cure = "use poisson, gamma, constant, burst or closed arrivals"
        yield "sessions", f"{spec.arrivals.process} sends requests that stand alone", cure
    tools, fan_out = sessions.tool_calls, sessions.fan_out
    for name, lengths in session_lengths(sessions):
        yield from _length(f"sessions.{name}", lengths)
    yield from _delay("sessions.think_time", sessions.think_time)
    if tools is not None:
        yield from _delay("sessions.tool_calls.delay", tools.delay)
    if fan_out is not None and _most(sessions.turns) <= fan_out.after:
        problem = f"no session goes on after turn {fan_out.after}, so that nobody is sent out"
        yield "sessions.fan_out.after", problem, "make it smaller, or give sessions more turns"


def session_lengths(sessions: specs.SessionsSpec) -> Iterator[tuple[str, specs.Lengths]]:
    """All lengths that only sessions have, with their key paths below ``sessions``."""
    tools, fan_out = sessions.tool_calls, sessions.fan_out
    yield "turns", sessions.turns
    if sessions.first_prompt_tokens is not None:
        yield "first_prompt_tokens", sessions.first_prompt_tokens
    if tools is not None and tools.tokens is not None:
        yield "tool_calls.tokens", tools.tokens
    if fan_out is not None:
        yield "fan_out.branches", fan_out.branches
        yield "fan_out.turns", fan_out.turns


def _most(lengths: specs.Lengths) -> float:
    """The largest that can be drawn."""
    if isinstance(lengths, specs.Fixed):
        return lengths.value
    if isinstance(lengths, specs.VllmRandom | specs.SglangRandom):
        return lengths.range_tokens[1]
    return inf if isinstance(lengths, specs.Empirical) or lengths.high is None else lengths.high


def _delay(name: str, delays: specs.Delays) -> Iterator[Fault]:
    if isinstance(delays, specs.LogNormalDelay):
        yield from _lognormal(name, delays)
    if isinstance(delays, specs.UniformDelay) and delays.low > delays.high:
        yield f"{name}.low", f"low={delays.low:g} s is above high={delays.high:g} s", "swap the two"


def _lognormal(name: str, lengths: specs.LogNormal | specs.LogNormalDelay) -> Iterator[Fault]:
    if (lengths.p99 is None) == (lengths.sigma is None):
        yield name, "lognormal needs either p99 or sigma", "give exactly one of the two"
    elif lengths.p99 is not None:
        try:
            lognormal_sigma(lengths.mean, lengths.p99)
        except ValueError as error:
            yield f"{name}.p99", str(error), "move p99 nearer to the mean, or draw from a file (empirical)"


def _range(name: str, lengths: specs.Uniform | specs.Normal | specs.LogNormal) -> Iterator[Fault]:
    if lengths.high is not None and lengths.low > lengths.high:
        yield f"{name}.low", f"low={lengths.low} is above high={lengths.high}", "swap the two"


def _priorities(spec: specs.TrafficSpec) -> Iterator[Fault]:
    if spec.priorities is not None and not spec.priorities:
        yield "priorities", "empty", "give weights of values, such as {0: 0.2, 1: 0.8}, or leave it out"
    for value in spec.priorities or {}:
        if abs(value) >= 2**31:
            yield "priorities", f"{value} is no priority: it has more than 31 bits", "use small whole numbers"
