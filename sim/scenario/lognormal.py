"""The lognormal distribution by its mean and 99th percentile."""

from __future__ import annotations

import math

Z99 = 2.3263478740408408
"""99 % of a standard normal lies below."""

STEEPEST_P99 = math.exp(Z99**2 / 2)
"""The largest p99 / mean a lognormal can have (14.97)."""


def lognormal_sigma(mean: float, p99: float) -> float:
    """Width of the logarithm, from ln p99 = mu + z sigma and mean = exp(mu + sigma^2 / 2); the smaller root.

    Raises ValueError where no lognormal has such a p99.
    """
    ratio = p99 / mean
    if not 1.0 <= ratio <= STEEPEST_P99:
        raise ValueError(f"p99 / mean is {ratio:.4g}, a lognormal reaches from 1 to {STEEPEST_P99:.2f}")
    log_ratio = math.log(ratio)
    # z - sqrt(z^2 - 2 ln r), written without the cancellation near r = 1.
    return 2.0 * log_ratio / (Z99 + math.sqrt(max(0.0, Z99**2 - 2.0 * log_ratio)))
