"""Poisson arrivals whose rate varies in time, exact: unit-exponential gaps are added up, and the sum is turned back
into a time by inverting the rate's integral (no thinning). A request takes one draw whatever the rates are, so that
another amplitude moves arrivals and reshuffles nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sim.scenario import specs
from sim.traffic.arrivals import Block, Floats

Invert = Callable[[Floats], Floats]
"""Times at which the integral of the rate from 0 reaches the given numbers of arrivals, which ascend."""
_HALVINGS = 54
"""Until an interval is as narrow as its ends can be told apart."""


class Inverted:
    """Arrivals where the integral of the rate reaches the sums of unit-exponential gaps."""

    def __init__(self, invert: Invert, generator: np.random.Generator) -> None:
        self._invert = invert
        self._generator = generator
        self._last = 0.0

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals."""
        gaps = self._generator.standard_exponential(count)
        gaps[0] += self._last
        expected = np.add.accumulate(gaps)
        self._last = float(expected[-1])
        return Block(self._invert(expected))


def ramp(spec: specs.Ramp) -> Invert:
    """Linear: L(t) = a t + (b - a) t^2 / 2T; exponential: L(t) = a (e^kt - 1) / k with k = ln(b / a) / T; then b t."""
    first, last, over_s = spec.from_, spec.to, spec.over
    growth = math.log(last / first) / over_s if spec.shape == "exponential" else 0.0
    if spec.shape == "exponential" and growth:
        total = (last - first) / growth
    else:
        total = (first + last) / 2 * over_s

    def rising(expected: Floats) -> Floats:
        if growth:
            risen: Floats = np.log1p(growth * expected / first) / growth
            return risen
        root = np.sqrt(np.maximum(0.0, first**2 + 2 * (last - first) / over_s * expected))
        times_s: Floats = 2 * expected / np.maximum(first + root, np.finfo(float).tiny)
        return times_s

    def invert(expected: Floats) -> Floats:
        inside = rising(np.minimum(expected, total))
        return np.where(expected < total, inside, over_s + (expected - total) / last)

    return invert


def diurnal(spec: specs.Diurnal) -> Invert:
    """The rate mean + amplitude sin(2 pi (t + phase) / period); within a period found by halving."""
    wave = 2 * math.pi / spec.period
    swing, start = spec.amplitude / wave, math.cos(wave * spec.phase)
    per_period = spec.mean * spec.period

    def invert(expected: Floats) -> Floats:
        periods = np.floor(expected / per_period)
        left = expected - periods * per_period
        low, high = np.zeros_like(left), np.full_like(left, spec.period)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            reached = spec.mean * middle + swing * (start - np.cos(wave * (middle + spec.phase))) >= left
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        times_s: Floats = periods * spec.period + high
        return times_s

    return invert


def steps(starts_s: Sequence[float], rates: Sequence[float]) -> Invert:
    """Constant rates from their starts on, of which the first is 0; the last rate holds for ever."""
    edges, levels = np.array(starts_s), np.array(rates)
    reached = np.concatenate(([0.0], np.cumsum(np.diff(edges) * levels[:-1])))

    def invert(expected: Floats) -> Floats:
        piece = np.maximum(np.searchsorted(reached, expected, side="left") - 1, 0)
        times_s: Floats = edges[piece] + (expected - reached[piece]) / levels[piece]
        return times_s

    return invert


def spikes(spec: specs.Spikes) -> Invert:
    """``peak`` for ``length`` at the end of each ``every``, or from each time of ``at`` on; else ``base``."""
    if spec.every is None:
        starts_s, rates = [0.0], [spec.base]
        for at_s in spec.at or ():
            if at_s == starts_s[-1]:
                starts_s, rates = starts_s[:-1], rates[:-1]
            starts_s += [at_s, at_s + spec.length]
            rates += [spec.peak, spec.base]
        return steps(starts_s, rates)
    every_s, calm_s = spec.every, spec.every - spec.length
    per_period = spec.base * calm_s + spec.peak * spec.length
    within = steps([0.0, calm_s], [spec.base, spec.peak]) if calm_s else steps([0.0], [spec.peak])

    def invert(expected: Floats) -> Floats:
        periods = np.floor(expected / per_period)
        inside = within(np.maximum(expected - periods * per_period, 0.0))
        times_s: Floats = periods * every_s + np.minimum(inside, every_s)
        return times_s

    return invert


class Modulated:
    """Inverts rates of random states, drawn as far as arrivals have come: exponential stays, then another state, each
    of the others alike. It starts in the first.
    """

    def __init__(self, spec: specs.Mmpp, generator: np.random.Generator) -> None:
        self._rates, self._dwell_s = spec.rates, spec.dwell
        self._generator = generator
        self._state = 0
        self._starts_s, self._reached, self._levels = [0.0], [0.0], [spec.rates[0]]
        self._extend()

    def __call__(self, expected: Floats) -> Floats:
        """Times at which as many arrivals are reached."""
        while self._reached[-1] < expected[-1]:
            self._extend()
        piece = np.maximum(np.searchsorted(self._reached, expected, side="left") - 1, 0)
        starts_s, reached = np.array(self._starts_s)[piece], np.array(self._reached)[piece]
        times_s: Floats = starts_s + (expected - reached) / np.array(self._levels)[piece]
        passed = int(piece[-1])
        for column in (self._starts_s, self._reached, self._levels):
            del column[:passed]
        return times_s

    def _extend(self) -> None:
        """The state that is entered last gets its end, and a next one begins."""
        stay_s = float(self._generator.standard_exponential()) * self._dwell_s[self._state]
        self._starts_s.append(self._starts_s[-1] + stay_s)
        self._reached.append(self._reached[-1] + stay_s * self._levels[-1])
        step = 1 + int(self._generator.integers(len(self._rates) - 1))
        self._state = (self._state + step) % len(self._rates)
        self._levels.append(self._rates[self._state])


Varying = specs.Ramp | specs.Diurnal | specs.Spikes | specs.Mmpp | specs.Piecewise


def varying(spec: Varying, generator: np.random.Generator) -> Inverted:
    """The process at its start. States of ``mmpp`` have a stream of their own."""
    match spec:
        case specs.Ramp():
            return Inverted(ramp(spec), generator)
        case specs.Diurnal():
            return Inverted(diurnal(spec), generator)
        case specs.Spikes():
            return Inverted(spikes(spec), generator)
        case specs.Piecewise():
            return Inverted(steps(spec.times, spec.rates), generator)
        case specs.Mmpp():
            (states,) = generator.spawn(1)
            return Inverted(Modulated(spec, states), generator)
