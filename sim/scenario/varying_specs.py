"""Poisson arrivals whose rate varies in time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.scenario.quantities import PerSecond, PositiveSeconds, RateOrNone, Seconds
from sim.scenario.spec import Concurrency, Spec

RATES_MOST = 10_000


class Ramp(Spec):
    """The rate goes from ``from`` to ``to`` within ``over``, and stays there."""

    process: Literal["ramp"]
    from_: RateOrNone = Field(alias="from")
    """Requests per second at the start; 0 only where the shape is linear."""
    to: PerSecond
    """Requests per second at the end and from there on."""
    over: PositiveSeconds
    """How long the ramp takes."""
    shape: Literal["linear", "exponential"] = "linear"
    """exponential: the rate doubles in equal times."""
    max_concurrency: Concurrency | None = None


class Diurnal(Spec):
    """A day's course: mean + amplitude sin(2 pi (t + phase) / period)."""

    process: Literal["diurnal"]
    mean: PerSecond
    """Requests per second, averaged over a period."""
    amplitude: RateOrNone
    """How far the rate swings above and below the mean; at most the mean."""
    period: PositiveSeconds = 86_400.0
    """From peak to peak."""
    phase: Seconds = 0.0
    """How far into the wave the run starts: a quarter of the period starts at the peak."""
    max_concurrency: Concurrency | None = None


class Spikes(Spec):
    """``base``, and ``peak`` for ``length``: at the end of each ``every``, or from the times ``at`` on."""

    process: Literal["spikes"]
    base: RateOrNone
    """Requests per second between spikes."""
    peak: PerSecond
    """Requests per second within a spike."""
    length: PositiveSeconds
    """How long a spike lasts."""
    every: PositiveSeconds | None = None
    """From spike to spike; a spike is the last part of it. Exactly one of ``every`` and ``at``."""
    at: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=RATES_MOST)] | None = None
    """When spikes start, ascending."""
    max_concurrency: Concurrency | None = None


class Mmpp(Spec):
    """Markov-modulated Poisson: a state has its rate, and lasts for exponential times; then another follows, each of
    the others alike. The first is that of the start.
    """

    process: Literal["mmpp"]
    rates: Annotated[tuple[RateOrNone, ...], Field(min_length=2, max_length=RATES_MOST)]
    """Requests per second, by state."""
    dwell: Annotated[tuple[PositiveSeconds, ...], Field(min_length=2, max_length=RATES_MOST)]
    """Mean stay, by state."""
    max_concurrency: Concurrency | None = None


class Piecewise(Spec):
    """A rate from each of ``times`` on; the last one stays."""

    process: Literal["piecewise"]
    times: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=RATES_MOST)]
    """When rates begin, ascending from 0."""
    rates: Annotated[tuple[RateOrNone, ...], Field(min_length=1, max_length=RATES_MOST)]
    """Requests per second, one per time."""
    max_concurrency: Concurrency | None = None


Varying = Ramp | Diurnal | Spikes | Mmpp | Piecewise
