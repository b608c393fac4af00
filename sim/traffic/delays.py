"""How long people think and tools run: distributions over seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sim.scenario import specs
from sim.scenario.lognormal import lognormal_sigma

Floats = NDArray[np.float64]
DrawDelays = Callable[[np.random.Generator, int], Floats]
"""``count`` delays in seconds from a generator."""


def build_delays(spec: specs.Delays) -> DrawDelays:
    """The distribution a scenario gives."""
    match spec:
        case specs.FixedDelay():
            value_s = spec.value
            return lambda _, count: np.full(count, value_s)
        case specs.UniformDelay():
            low_s, high_s = spec.low, spec.high
            return lambda generator, count: generator.uniform(low_s, high_s, count)
        case specs.ExponentialDelay():
            mean_s = spec.mean
            return lambda generator, count: mean_s * generator.standard_exponential(count)
        case specs.LogNormalDelay():
            sigma = spec.sigma if spec.p99 is None else lognormal_sigma(spec.mean, spec.p99)
            assert sigma is not None, "a lognormal has p99 or sigma"
            width, mu = sigma, math.log(spec.mean) - sigma**2 / 2
            return lambda generator, count: np.exp(mu + width * generator.standard_normal(count))
    raise AssertionError(f"unknown distribution {spec}")
