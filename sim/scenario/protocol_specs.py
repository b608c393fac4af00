"""How each load generator sends its requests, as a scenario says it: one spec per tool, its flags as keys."""

from __future__ import annotations

from math import ceil, floor
from typing import Annotated, Literal

from pydantic import Field

from sim.scenario.quantities import REAL, WHOLE, PerSecond, PositiveSeconds, Seconds
from sim.scenario.spec import Concurrency, Spec

Burstiness = Annotated[float, Field(gt=0, le=1e8), REAL]


class VllmBench(Spec):
    """``vllm bench serve``: gamma gaps, stretched so that the last request is sent at requests / rate exactly."""

    process: Literal["vllm-bench"]
    rate: PerSecond | None = None
    """--request-rate; blank is inf, all at once."""
    burstiness: Burstiness | None = None
    """--burstiness: gaps have a coefficient of variation of burstiness ** -0.5. Blank: 1, a Poisson process."""
    ramp_up: Literal["linear", "exponential"] | None = None
    """--ramp-up-strategy: the rate goes from ramp_up_start_rate to ramp_up_end_rate over the requests, unstretched."""
    ramp_up_start_rate: PerSecond | None = None
    """--ramp-up-start-rps."""
    ramp_up_end_rate: PerSecond | None = None
    """--ramp-up-end-rps."""
    max_concurrency: Concurrency | None = None
    """--max-concurrency: requests beyond wait for a free place, and that is no part of TTFT."""


class SglangBench(Spec):
    """sglang's ``bench_serving``: exponential gaps, the first request at once, not stretched."""

    process: Literal["sglang-bench"]
    rate: PerSecond | None = None
    """--request-rate; blank is inf, all at once."""
    max_concurrency: Concurrency | None = None
    """--max-concurrency."""


class Guidellm(Spec):
    """guidellm's profiles."""

    process: Literal["guidellm"]
    profile: Literal["synchronous", "concurrent", "throughput", "constant", "poisson"]
    """--profile; a sweep is several runs."""
    rate: PerSecond | None = None
    """Of constant and poisson."""
    streams: Concurrency | None = None
    """Of concurrent: requests in flight."""
    max_concurrency: Concurrency | None = None
    """Of throughput, constant and poisson."""
    rampup: Seconds = 0.0
    """--rampup: constant raises its rate from 0 over so long; concurrent and throughput spread their first requests."""


class Aiperf(Spec):
    """aiperf: a rate by an arrival pattern, or so many requests in flight."""

    process: Literal["aiperf"]
    rate: PerSecond | None = None
    """--request-rate; blank: ``concurrency`` requests are kept in flight."""
    arrival_pattern: Literal["constant", "poisson", "gamma"] | None = None
    """--arrival-pattern of a rate; blank is poisson."""
    arrival_smoothness: Burstiness | None = None
    """--arrival-smoothness: shape of gamma gaps; blank is 1."""
    concurrency: Concurrency | None = None
    """--concurrency: the most in flight. With a rate, a moment at which all places are taken is skipped."""


class InferencePerf(Spec):
    """inference-perf: a stage of ``rate`` for ``duration``."""

    process: Literal["inference-perf"]
    type: Literal["constant", "poisson", "concurrent"]
    """constant: exponential gaps, stretched to fill the duration. poisson: a Poisson number for every second, placed so
    within it. concurrent: ``concurrency`` requests in flight."""
    rate: PerSecond | None = None
    """Of constant and poisson."""
    duration: PositiveSeconds | None = None
    """Of constant and poisson, which send rate x duration requests."""
    concurrency: Concurrency | None = None
    """concurrency_level of concurrent."""


class Llmperf(Spec):
    """ray's llmperf: threads that each send one request after another."""

    process: Literal["llmperf"]
    concurrency: Concurrency
    """--num-concurrent-requests."""


Protocol = VllmBench | SglangBench | Guidellm | Aiperf | InferencePerf | Llmperf

RangeRatio = Annotated[float, Field(ge=0, lt=1), REAL]
RangeShare = Annotated[float, Field(ge=0, le=1), REAL]
Length = Annotated[int, Field(gt=0, le=10_000_000), WHOLE]


class VllmRandom(Spec):
    """vllm bench's random data: whole numbers from floor(L (1 - ratio)) to ceil(L (1 + ratio)), at least 1."""

    distribution: Literal["vllm-random"]
    length: Length
    """--random-input-len or --random-output-len."""
    range_ratio: RangeRatio = 0.0
    """--random-range-ratio."""

    @property
    def range_tokens(self) -> tuple[int, int]:
        """Smallest and largest."""
        ratio = self.range_ratio
        return max(floor(self.length * (1 - ratio)), 1), ceil(self.length * (1 + ratio))


class SglangRandom(Spec):
    """sglang's random data: whole numbers from max(floor(L ratio), 1) to L."""

    distribution: Literal["sglang-random"]
    length: Length
    """--random-input-len or --random-output-len."""
    range_ratio: RangeShare = 0.0
    """--random-range-ratio."""

    @property
    def range_tokens(self) -> tuple[int, int]:
        """Smallest and largest."""
        return max(int(self.length * self.range_ratio), 1), self.length
