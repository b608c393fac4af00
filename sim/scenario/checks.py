"""What one key alone cannot tell: keys that need, exclude or contradict each other, and files that must be there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sim import resources
from sim.errors import Problem
from sim.scenario.document import Source, split_path
from sim.scenario.quantities import PositiveSeconds
from sim.scenario.specs import (
    MOST_REQUESTS,
    MOST_TOKENS,
    Arrivals,
    Burst,
    Closed,
    Empirical,
    Gamma,
    Lengths,
    LogNormal,
    Normal,
    Trace,
    Uniform,
)

Z99 = 2.3263478740408408
"""The 99 % quantile of the standard normal distribution."""
CV = (1e-4, 1e3)
LEAST_RATE_PER_S = 1e-6
MOST_SCALE = 1e6
Found = Iterator[tuple[str, str, str]]
"""(dotted path, problem, cure)."""


class Parts:
    """A scenario's data, of which some may be wrong: only what is valid in itself is checked against the rest."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def raw(self, path: str) -> Any:
        """What the user wrote; None where nothing."""
        return self._source.get(split_path(path))

    def valid(self, path: str, kind: Any) -> Any:
        """The validated value at ``path``; None where there is none, or a wrong one."""
        value = self.raw(path)
        try:
            return None if value is None else _adapter(kind).validate_python(value)
        except ValidationError:
            return None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check(source: Source, base_dir: Path) -> list[Problem]:
    """Every problem between the parts of a scenario that are each valid."""
    parts = Parts(source)
    found = [*_names(parts, base_dir), *_engine(parts)]
    if isinstance(parts.raw("traffic"), dict):
        arrivals = parts.valid("traffic.arrivals", Arrivals)
        found += [*_arrivals(arrivals, base_dir), *_end(parts, arrivals), *_priorities(parts)]
        for path in ("traffic.prompt_tokens", "traffic.output_tokens"):
            if parts.raw(path) is None and arrivals is not None and not isinstance(arrivals, Trace):
                name = path.rpartition(".")[2]
                found.append((path, "is required and missing", f"add {name}: 512, or a distribution"))
            found += _lengths(path, parts.valid(path, Lengths), base_dir)
    return [source.problem(split_path(path), problem, cure) for path, problem, cure in found]


def _names(parts: Parts, base_dir: Path) -> Found:
    from sim.hardware import profile_names
    from sim.models import preset_names

    model = parts.raw("model")
    if isinstance(model, str) and not _is_model(model, preset_names(), base_dir):
        cure = resources.nearest(model, preset_names()) + "; or give the path of a config.json"
        yield "model", f"no preset and no file is called {model!r}", cure
    path = "hardware.profile" if isinstance(parts.raw("hardware"), dict) else "hardware"
    hardware = parts.raw(path)
    if isinstance(hardware, str) and hardware not in profile_names() and not _is_file(hardware, base_dir):
        cure = resources.nearest(hardware, profile_names()) + "; or give the path of a profile"
        yield path, f"no profile and no file is called {hardware!r}", cure


def _is_model(name: str, presets: list[str], base_dir: Path) -> bool:
    from sim.models import is_preset

    known = name in presets or is_preset(name)
    return known or _is_file(name, base_dir) or _is_file(f"{name}/config.json", base_dir)


def _is_file(path: str, base_dir: Path) -> bool:
    return bool(path) and resources.locate(path, base_dir) is not None


def _file(path: str, name: str, base_dir: Path) -> Found:
    if not _is_file(name, base_dir):
        yield path, f"no file is called {name!r}", "give the path of a file, seen from the scenario's folder"


def _arrivals(arrivals: Any, base_dir: Path) -> Found:
    if isinstance(arrivals, Gamma):
        yield from _gamma(arrivals)
    if isinstance(arrivals, Trace):
        yield from _file("traffic.arrivals.path", arrivals.path, base_dir)
        if not 1 / MOST_SCALE <= arrivals.time_scale <= MOST_SCALE:
            cure = f"give a factor from {1 / MOST_SCALE:g} to {MOST_SCALE:g}"
            yield "traffic.arrivals.time_scale", f"{arrivals.time_scale:g} is out of range", cure
    rate = getattr(arrivals, "rate", None)
    if rate is not None and rate < LEAST_RATE_PER_S:
        yield "traffic.arrivals.rate", f"{rate:g} per second is out of range", f"give {LEAST_RATE_PER_S:g} or more"


def _gamma(arrivals: Gamma) -> Found:
    if arrivals.cv is None and arrivals.burstiness is None:
        yield "traffic.arrivals", "gamma says neither cv nor burstiness", "add cv; 1 is Poisson, more is burstier"
    elif arrivals.cv is not None and arrivals.burstiness is not None:
        yield "traffic.arrivals.burstiness", "cv says this already (burstiness is 1 / cv^2)", "keep one of the two"
    else:
        name = "burstiness" if arrivals.cv is None else "cv"
        low, high = CV if arrivals.cv is not None else (CV[1] ** -2, CV[0] ** -2)
        value = arrivals.burstiness if arrivals.cv is None else arrivals.cv
        assert value is not None, "one of the two is given"
        if not low <= value <= high:
            cure = f"give {low:g} to {high:g}; process: constant has no spread"
            yield f"traffic.arrivals.{name}", f"{value:g} is out of range", cure


def _end(parts: Parts, arrivals: Any) -> Found:
    """The load ends, and not after too many requests."""
    requests, duration_s = parts.raw("traffic.requests"), parts.raw("traffic.duration")
    if arrivals is None or isinstance(arrivals, Trace) or requests is not None:
        return
    if isinstance(arrivals, Burst):
        yield "traffic", "a burst has no size", "add requests: 1000"
    elif duration_s is None:
        yield "traffic", "the load never ends", "add requests: 1000, or duration: 10 min"
    elif not isinstance(arrivals, Closed):
        seconds = parts.valid("traffic.duration", PositiveSeconds)
        expected = arrivals.rate * (seconds or 0.0)
        if expected > MOST_REQUESTS:
            cure = f"shorten it: {MOST_REQUESTS:,} requests at most"
            yield "traffic.duration", f"{arrivals.rate:g} per second would be {expected:.3g} requests", cure


def _priorities(parts: Parts) -> Found:
    priorities = parts.raw("traffic.priorities")
    if priorities is None:
        return
    if parts.raw("engine.policy") != "priority":
        yield "traffic.priorities", "has no effect under the fcfs policy", "add policy: priority under engine"
    if priorities == {}:
        yield "traffic.priorities", "is empty", "give weights, as in {0: 0.2, 1: 0.8}, or leave it out"
    for value in priorities if isinstance(priorities, dict) else ():
        if isinstance(value, int) and abs(value) >= 2**31:
            yield f"traffic.priorities.{value}", "is no priority: it has more than 31 bits", "use small whole numbers"


def _lengths(path: str, lengths: Any, base_dir: Path) -> Found:
    if isinstance(lengths, Uniform | Normal | LogNormal) and lengths.high is not None and lengths.low > lengths.high:
        yield f"{path}.low", f"{lengths.low} is above high, {lengths.high}", "swap the two"
    if isinstance(lengths, Normal | LogNormal) and lengths.mean > MOST_TOKENS:
        yield f"{path}.mean", f"{lengths.mean:g} is more than {MOST_TOKENS:,}", f"give {MOST_TOKENS:,} or less"
    if isinstance(lengths, Empirical):
        yield from _file(f"{path}.path", lengths.path, base_dir)
    if isinstance(lengths, LogNormal):
        if lengths.p99 is None and lengths.sigma is None:
            yield path, "lognormal says neither p99 nor sigma", "add p99: the length that 1 % exceed"
        elif lengths.p99 is not None and lengths.sigma is not None:
            yield f"{path}.sigma", "p99 says this already", "keep one of the two"
        elif lengths.p99 is not None:
            yield from _p99(f"{path}.p99", lengths.mean, lengths.p99)


def _p99(path: str, mean: float, p99: float) -> Found:
    """As ln p99 = mu + z sigma and mean = exp(mu + sigma^2 / 2), p99 / mean peaks at exp(z^2 / 2), where sigma = z."""
    largest = mean * math.exp(Z99**2 / 2)
    if not mean <= p99 <= largest:
        cure = f"give {mean:g} to {math.floor(largest):,}"
        yield path, f"no lognormal of mean {mean:g} has its 99th percentile at {p99:g}", cure


def _engine(parts: Parts) -> Found:
    if parts.raw("engine.weight_dtype") is not None and isinstance(parts.raw("model"), dict):
        yield "engine.weight_dtype", "an abstract model says its own weight_dtype", "set model.weight_dtype instead"
