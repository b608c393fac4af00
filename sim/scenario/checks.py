"""What one key alone cannot tell: keys that need, exclude or contradict each other, and files that must be there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from sim import resources
from sim.errors import Problem
from sim.scenario.document import Source, split_path
from sim.scenario.specs import (
    AbstractModel,
    Burst,
    Empirical,
    Gamma,
    HardwareOverride,
    LogNormal,
    Normal,
    Scenario,
    Trace,
    TrafficSpec,
    Uniform,
)

Z99 = 2.3263478740408408
"""The 99 % quantile of the standard normal distribution."""
Found = Iterator[tuple[str, str, str]]
"""(dotted path, problem, cure)."""


def check(spec: Scenario, source: Source, base_dir: Path) -> list[Problem]:
    """Problems of a scenario whose keys are each valid."""
    found = (*_names(spec, base_dir), *_traffic(spec.traffic, base_dir), *_engine(spec))
    return [source.problem(split_path(path), problem, cure) for path, problem, cure in found]


def _names(spec: Scenario, base_dir: Path) -> Found:
    from sim.hardware import profile_names
    from sim.models import preset_names

    if not isinstance(spec.model, AbstractModel) and not _known(spec.model, preset_names(), base_dir, fold=True):
        cure = resources.nearest(spec.model, preset_names())
        yield "model", f"no preset and no file is called {spec.model}", cure + "; or a path to a config.json"
    override = isinstance(spec.hardware, HardwareOverride)
    name = spec.hardware.profile if isinstance(spec.hardware, HardwareOverride) else spec.hardware
    if not _known(name, profile_names(), base_dir):
        cure = resources.nearest(name, profile_names()) + "; or a path to a profile"
        yield "hardware.profile" if override else "hardware", f"no profile and no file is called {name}", cure


def _known(name: str, names: list[str], base_dir: Path, *, fold: bool = False) -> bool:
    if name in names or (fold and name.lower() in names):
        return True
    if fold:
        from sim.models import is_preset

        if is_preset(name):
            return True
    return resources.locate(name, base_dir) is not None or (base_dir / name / "config.json").is_file()


def _traffic(traffic: TrafficSpec, base_dir: Path) -> Found:
    arrivals = traffic.arrivals
    if isinstance(arrivals, Gamma) and (arrivals.cv is None) == (arrivals.burstiness is None):
        yield "traffic.arrivals", "gamma needs exactly one of cv and burstiness", "give cv: 1 for Poisson, more for bursts"
    if isinstance(arrivals, Trace):
        yield from _trace(traffic, base_dir, arrivals)
    else:
        for name in ("prompt_tokens", "output_tokens"):
            if getattr(traffic, name) is None:
                yield f"traffic.{name}", "is required and missing", f"add {name}: 512, or a distribution"
        if traffic.requests is None and (traffic.duration is None or isinstance(arrivals, Burst)):
            yield "traffic", "never ends", "add requests: 1000" + ("" if isinstance(arrivals, Burst) else " or duration: 10 min")
    for name in ("prompt_tokens", "output_tokens"):
        yield from _lengths(f"traffic.{name}", getattr(traffic, name), base_dir)


def _trace(traffic: TrafficSpec, base_dir: Path, arrivals: Trace) -> Found:
    if resources.locate(arrivals.path, base_dir) is None:
        yield "traffic.arrivals.path", f"no file is called {arrivals.path}", f"give a path seen from {base_dir or '.'}"
    for name in ("prompt_tokens", "output_tokens"):
        if getattr(traffic, name) is not None:
            yield f"traffic.{name}", "a trace brings its own lengths", "leave it out"


def _lengths(path: str, lengths: object, base_dir: Path) -> Found:
    low, high = getattr(lengths, "low", None), getattr(lengths, "high", None)
    if isinstance(lengths, Uniform | Normal | LogNormal) and low is not None and high is not None and low > high:
        yield path, f"low {low} is above high {high}", "swap them"
    if isinstance(lengths, Empirical) and resources.locate(lengths.path, base_dir) is None:
        yield f"{path}.path", f"no file is called {lengths.path}", f"give a path seen from {base_dir or '.'}"
    if isinstance(lengths, LogNormal):
        if (lengths.p99 is None) == (lengths.sigma is None):
            yield path, "lognormal needs exactly one of p99 and sigma", "give p99, the length 1 % exceed"
        elif lengths.p99 is not None:
            largest = lengths.mean * math.exp(Z99**2 / 2)
            if not lengths.mean < lengths.p99 < largest:
                yield (
                    f"{path}.p99",
                    f"no lognormal with mean {lengths.mean:g} has its 99th percentile at {lengths.p99:g}",
                    f"give a p99 between {lengths.mean:g} and {largest:.4g}",
                )


def _engine(spec: Scenario) -> Found:
    if spec.traffic.priorities is not None and spec.engine.policy != "priority":
        yield "traffic.priorities", "has no effect under the fcfs policy", "add engine: {policy: priority}"
    if isinstance(spec.model, AbstractModel) and spec.engine.weight_dtype is not None:
        yield "engine.weight_dtype", "an abstract model says its own weight_dtype", "set model.weight_dtype"
