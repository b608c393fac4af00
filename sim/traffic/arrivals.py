"""When requests arrive: small processes that hand out the next arrivals, a block at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.scenario import specs
from sim.traffic.hash_blocks import HashBlocks

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Block(NamedTuple):
    """Consecutive arrivals; a column is None where the source says nothing about it."""

    time_s: Floats
    prompt_tokens: Integers | None = None
    output_tokens: Integers | None = None
    priority: Integers | None = None
    hash_ids: Sequence[tuple[int, Sequence[int]]] | None = None
    """Of each prompt, its length in the trace and the ids of its blocks: they become pieces one request at a time."""
    blocks: HashBlocks | None = None
    """How they do."""
    class_index: Integers | None = None
    """Which of the traffic's classes each is of."""


class Source(Protocol):
    """Hands out arrivals in order of time. A split into blocks never changes a value."""

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals; fewer only where the source ends."""
        ...


class Renewal:
    """Independent gaps, the first from time 0 to the first arrival, added up one by one."""

    def __init__(self, draw_gaps_s: Callable[[int], Floats]) -> None:
        self._draw_gaps_s = draw_gaps_s
        self._last_s = 0.0

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals."""
        gaps_s = self._draw_gaps_s(count)
        gaps_s[0] += self._last_s
        times_s = np.add.accumulate(gaps_s)
        self._last_s = float(times_s[-1])
        return Block(times_s)


def poisson(rate_per_s: float, generator: np.random.Generator) -> Renewal:
    """Exponential gaps of mean 1 / rate."""
    return Renewal(lambda count: generator.standard_exponential(count) / rate_per_s)


def gamma(rate_per_s: float, cv: float, generator: np.random.Generator) -> Renewal:
    """Gamma gaps of mean 1 / rate and coefficient of variation ``cv``: burstier than Poisson above 1."""
    shape = 1.0 / cv**2
    return Renewal(lambda count: generator.standard_gamma(shape, count) / shape / rate_per_s)


class Constant:
    """Request i at i / rate, free of accumulated rounding."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._taken = 0

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals."""
        first, self._taken = self._taken, self._taken + count
        return Block(np.arange(first, self._taken) / self._rate_per_s)


class AtOnce:
    """Everything at time 0: a burst, or a closed loop whose clients pace it."""

    def take(self, count: int) -> Block:
        """``count`` arrivals at time 0."""
        return Block(np.zeros(count))


def gap_cv(spec: specs.Gamma) -> float:
    """Coefficient of variation of gamma gaps; ``burstiness`` is 1 / cv^2."""
    if spec.cv is not None:
        return spec.cv
    assert spec.burstiness is not None, "a gamma process has cv or burstiness"
    return 1.0 / math.sqrt(spec.burstiness)


def build_process(spec: specs.Arrivals, generator: np.random.Generator) -> Source:
    """The process of a scenario, at its start. A trace is no process: see ``traces``."""
    match spec:
        case specs.Poisson():
            return poisson(spec.rate, generator)
        case specs.Gamma():
            return gamma(spec.rate, gap_cv(spec), generator)
        case specs.Constant():
            return Constant(spec.rate)
        case specs.Burst() | specs.Closed():
            return AtOnce()
        case specs.Ramp() | specs.Diurnal() | specs.Spikes() | specs.Mmpp() | specs.Piecewise():
            from sim.traffic.rates import varying

            return varying(spec, generator)
    raise AssertionError(f"{spec.process} draws no times")
