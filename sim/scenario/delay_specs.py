"""How long people think and tools run, as a scenario says it: one spec per distribution of seconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.scenario.quantities import REAL, PositiveSeconds, Seconds
from sim.scenario.spec import Spec


class FixedDelay(Spec):
    """Always ``value``; a bare time says the same."""

    distribution: Literal["fixed"]
    value: Seconds


class UniformDelay(Spec):
    """Anything from ``low`` to ``high``."""

    distribution: Literal["uniform"]
    low: Seconds
    high: Seconds


class ExponentialDelay(Spec):
    """Memoryless, of this mean."""

    distribution: Literal["exponential"]
    mean: PositiveSeconds


class LogNormalDelay(Spec):
    """``mean`` is the distribution's own mean; its width is ``sigma`` (of the logarithm) or ``p99``; exactly one."""

    distribution: Literal["lognormal"]
    mean: PositiveSeconds
    p99: PositiveSeconds | None = None
    sigma: Annotated[float, Field(ge=0, le=20), REAL] | None = None


def _bare_time(value: Any) -> Any:
    """A bare time is a fixed delay."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return {"distribution": "fixed", "value": value}
    return value


Delays = Annotated[
    Annotated[FixedDelay | UniformDelay | ExponentialDelay | LogNormalDelay, Field(discriminator="distribution")],
    BeforeValidator(_bare_time),
]
