"""What processes with a varying rate must satisfy beyond the type of each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sim.scenario import specs

LEAST_RATE_PER_S = 1e-6
Fault = tuple[str, str, str]


def varying_faults(arrivals: object) -> Iterator[Fault]:
    """Everything wrong in such a process: key path below ``traffic``, problem, cure. None for other processes."""
    match arrivals:
        case specs.Ramp():
            yield from _ramp(arrivals)
        case specs.Diurnal():
            yield from _least("mean", arrivals.mean)
            if arrivals.amplitude > arrivals.mean:
                problem = f"amplitude={arrivals.amplitude:g} would make the rate negative"
                yield "arrivals.amplitude", problem, f"give at most the mean, {arrivals.mean:g}"
        case specs.Spikes():
            yield from _spikes(arrivals)
        case specs.Piecewise():
            yield from _same_number("times", arrivals.times, arrivals.rates)
            yield from _ascending("times", arrivals.times)
            if arrivals.times[0] != 0:
                yield "arrivals.times", f"nothing is said of the time before {arrivals.times[0]:g} s", "start with 0"
            yield from _least("rates", arrivals.rates[-1], "the last rate, which stays,")
        case specs.Mmpp():
            yield from _same_number("dwell", arrivals.dwell, arrivals.rates)
            yield from _least("rates", max(arrivals.rates), "the highest rate")


def _ramp(arrivals: specs.Ramp) -> Iterator[Fault]:
    if arrivals.shape == "exponential":
        yield from _least("from", arrivals.from_)
    yield from _least("to", arrivals.to)


def _spikes(arrivals: specs.Spikes) -> Iterator[Fault]:
    yield from _least("peak", arrivals.peak)
    if (arrivals.every is None) == (arrivals.at is None):
        yield "arrivals.every", "spikes need either every or at", "give exactly one of the two"
    elif arrivals.every is not None and arrivals.length > arrivals.every:
        yield "arrivals.length", f"a spike outlasts every={arrivals.every:g} s", "make it shorter"
    elif arrivals.at is not None:
        yield from _least("base", arrivals.base, "the rate after the last spike")
        yield from _ascending("at", arrivals.at)
        gaps_s = [later - at for at, later in pairwise(arrivals.at)]
        if gaps_s and 0 < min(gaps_s) < arrivals.length:
            yield "arrivals.length", f"spikes {min(gaps_s):g} s apart overlap", "make them shorter"


def _least(key: str, rate: float, what: str = "the rate") -> Iterator[Fault]:
    if rate < LEAST_RATE_PER_S:
        cure = f"give at least {LEAST_RATE_PER_S:g} per second; duration ends a load"
        yield f"arrivals.{key}", f"{what} is {rate:g}: too small", cure


def _same_number(key: str, values: Sequence[float], rates: Sequence[float]) -> Iterator[Fault]:
    if len(values) != len(rates):
        yield f"arrivals.{key}", f"{len(values)} {key} for {len(rates)} rates", "give one per rate"


def _ascending(key: str, times_s: Sequence[float]) -> Iterator[Fault]:
    if any(later <= at for at, later in pairwise(times_s)):
        yield f"arrivals.{key}", "times do not ascend", "sort them, each once"
