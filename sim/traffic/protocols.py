"""Arrivals as load generators make them, to the letter. Where a tool's process is an ordinary one, it is that one.

Read from source: vllm bench serve 0.33, sglang bench_serving 0.5.23, guidellm 0.8, aiperf 0.13, inference-perf (August
2026), llmperf. Each draws from our own random stream: the law is the tool's, the numbers are not.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import numpy as np

from sim.scenario import specs
from sim.traffic.arrivals import Block, Floats, Renewal, Source, gamma, poisson

PASS_REQUESTS = 65_536
"""Requests drawn at a time where all gaps must be summed before the first is known."""


def plain(arrivals: specs.Arrivals) -> specs.Arrivals:
    """The ordinary process that a tool's loop amounts to; what has times of its own stays as it is."""
    match arrivals:
        case specs.Guidellm(profile="synchronous"):
            return specs.Closed(process="closed", concurrency=1)
        case specs.Guidellm(profile="concurrent", rampup=0.0):
            return specs.Closed(process="closed", concurrency=arrivals.streams or 1)
        case specs.Guidellm(profile="throughput", rampup=0.0):
            return specs.Burst(process="burst", max_concurrency=arrivals.max_concurrency)
        case specs.Guidellm(profile="poisson"):
            return specs.Poisson(process="poisson", rate=arrivals.rate or 1.0, max_concurrency=arrivals.max_concurrency)
        case specs.VllmBench(rate=None, ramp_up=None) | specs.SglangBench(rate=None):
            return specs.Burst(process="burst", max_concurrency=arrivals.max_concurrency)
        case specs.Aiperf(rate=None) | specs.Llmperf() | specs.InferencePerf(type="concurrent"):
            return specs.Closed(process="closed", concurrency=arrivals.concurrency or 1)
    return arrivals


def build_protocol(arrivals: specs.Arrivals, requests: int | None, generator: np.random.Generator) -> Source | None:
    """The arrivals of a tool; None for an ordinary process. ``requests``: how many there will be."""
    match arrivals:
        case specs.VllmBench():
            assert requests is not None, "vllm bench knows how many requests it sends"
            return _vllm_bench(arrivals, requests, generator)
        case specs.SglangBench():
            return FirstAtOnce(poisson(arrivals.rate or 1.0, generator))
        case specs.Guidellm():
            return _guidellm(arrivals)
        case specs.Aiperf():
            return _aiperf(arrivals, generator)
        case specs.InferencePerf():
            return _inference_perf(arrivals, generator)
    return None


class Stretched:
    """``requests`` arrivals of another process, all times multiplied so that the last one is at ``end_s``."""

    def __init__(
        self,
        process: Callable[[np.random.Generator], Renewal],
        generator: np.random.Generator,
        requests: int,
        end_s: float,
    ) -> None:
        last_s, left, rehearsal = 0.0, requests, process(deepcopy(generator))
        self._process = process(generator)
        self._left = requests
        self._end_s = end_s
        while left:
            count = min(left, PASS_REQUESTS)
            last_s = float(rehearsal.take(count).time_s[-1])
            left -= count
        self._factor = end_s / last_s if last_s > 0 else 1.0

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals; fewer once all are taken."""
        count = min(count, self._left)
        if not count:
            return Block(np.array([]))
        self._left -= count
        time_s = self._process.take(count).time_s * self._factor
        if not self._left:
            time_s[-1] = self._end_s
        return Block(time_s)


class FirstAtOnce:
    """Another process whose first gap comes after the first request."""

    def __init__(self, process: Source) -> None:
        self._process = process
        self._sent_first = False

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals, the very first of which is at time 0."""
        if self._sent_first:
            return self._process.take(count)
        self._sent_first = True
        time_s = self._process.take(count - 1).time_s if count > 1 else np.array([])
        return Block(np.concatenate(([0.0], time_s)))


class RampUp:
    """Gamma gaps whose rate goes from one value to another over the requests, by index (vllm bench)."""

    def __init__(
        self,
        rates_per_s: tuple[float, float],
        shape: str,
        requests: int,
        burstiness: float,
        generator: np.random.Generator,
    ) -> None:
        self._start, self._end = rates_per_s
        self._exponential = shape == "exponential"
        self._last = max(requests - 1, 1)
        self._taken = 0
        self._time_s = 0.0
        self._burstiness = burstiness
        self._generator = generator

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals."""
        share = np.arange(self._taken, self._taken + count) / self._last
        self._taken += count
        rate = self._start + (self._end - self._start) * share
        if self._exponential:
            rate = self._start * (self._end / self._start) ** share
        gaps_s = self._generator.standard_gamma(self._burstiness, count) / self._burstiness / rate
        gaps_s[0] += self._time_s
        time_s = np.add.accumulate(gaps_s)
        self._time_s = float(time_s[-1])
        return Block(time_s)


class ByIndex:
    """Request i, counted from 1, at a time that follows from i (guidellm)."""

    def __init__(self, time_of: Callable[[Floats], Floats]) -> None:
        self._time_of = time_of
        self._taken = 0

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals."""
        index = np.arange(self._taken + 1, self._taken + count + 1, dtype=np.float64)
        self._taken += count
        return Block(self._time_of(index))


class PerSecond:
    """A Poisson number of requests for every second, their exponential gaps stretched to fill it (inference-perf)."""

    def __init__(self, rate_per_s: float, generator: np.random.Generator) -> None:
        self._rate_per_s = rate_per_s
        self._generator = generator
        self._second = 0.0
        self._ready: list[Floats] = []

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals."""
        while sum(map(len, self._ready)) < count:
            requests = int(self._generator.poisson(self._rate_per_s))
            if requests:
                gaps = self._generator.standard_exponential(requests)
                inside = np.add.accumulate(gaps)
                self._ready.append(self._second + inside / inside[-1])
            self._second += 1.0
        time_s = np.concatenate(self._ready)
        self._ready = [time_s[count:]]
        return Block(time_s[:count])


def _vllm_bench(arrivals: specs.VllmBench, requests: int, generator: np.random.Generator) -> Source:
    burstiness = 1.0 if arrivals.burstiness is None else arrivals.burstiness
    if arrivals.ramp_up is not None:
        rates = (arrivals.ramp_up_start_rate or 1.0, arrivals.ramp_up_end_rate or 1.0)
        return RampUp(rates, arrivals.ramp_up, requests, burstiness, generator)
    assert arrivals.rate is not None, "without a rate it is a burst"
    gaps = partial(gamma, arrivals.rate, burstiness**-0.5)
    return Stretched(gaps, generator, requests, requests / arrivals.rate)


def _guidellm(arrivals: specs.Guidellm) -> Source:
    rampup_s = arrivals.rampup
    if arrivals.profile == "constant":
        return ByIndex(_rising(arrivals.rate or 1.0, rampup_s))
    limit = (arrivals.streams if arrivals.profile == "concurrent" else arrivals.max_concurrency) or 1
    # The counter starts at 1: of the first ``streams`` requests the last one is at once, of a throughput run's at
    # the end.
    beyond_s = 0.0 if arrivals.profile == "concurrent" else rampup_s
    return _Sorted(ByIndex(lambda index: np.where(index < limit, rampup_s * index / limit, beyond_s)), limit)


def _rising(rate_per_s: float, rampup_s: float) -> Callable[[Floats], Floats]:
    """Times of a rate that rises from 0 to its value over ``rampup_s``: i = rate t^2 / (2 rampup_s), then steadily."""
    in_ramp = rate_per_s * rampup_s / 2

    def times_s(index: Floats) -> Floats:
        rising_s: Floats = np.sqrt(2 * index * rampup_s / rate_per_s)
        steady_s: Floats = rampup_s + (index - in_ramp) / rate_per_s
        return np.where(index <= in_ramp, rising_s, steady_s)

    return times_s


class _Sorted:
    """Arrivals whose first ``count`` are not in order of time."""

    def __init__(self, process: Source, count: int) -> None:
        self._process = process
        self._count = count
        self._head: Floats | None = None
        self._last_s = 0.0

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals, in order of time."""
        if self._head is None:
            self._head = np.sort(self._process.take(self._count).time_s)
        head, self._head = self._head[:count], self._head[count:]
        if len(head) == count:
            return Block(head)
        self._last_s = max(self._last_s, head.max(initial=0.0))
        later_s = np.maximum(self._process.take(count - len(head)).time_s, self._last_s)
        return Block(np.concatenate((head, later_s)))


def _inference_perf(arrivals: specs.InferencePerf, generator: np.random.Generator) -> Source:
    """A stage sends rate x duration requests, whichever way they are spread."""
    rate, duration_s = arrivals.rate or 1.0, arrivals.duration or 1.0
    requests = int(rate * duration_s)
    if arrivals.type == "constant":
        return Stretched(partial(poisson, rate), generator, requests, duration_s)
    return _First(PerSecond(rate, generator), requests)


class _First:
    """The first ``requests`` of another process."""

    def __init__(self, process: Source, requests: int) -> None:
        self._process = process
        self._left = requests

    def take(self, count: int) -> Block:
        """The next ``count`` arrivals; fewer once all are taken."""
        count = min(count, self._left)
        self._left -= count
        return self._process.take(count) if count else Block(np.array([]))


def _aiperf(arrivals: specs.Aiperf, generator: np.random.Generator) -> Source:
    rate, pattern = arrivals.rate or 1.0, arrivals.arrival_pattern
    if pattern == "constant":
        return ByIndex(lambda index: index / rate)
    if pattern == "gamma":
        return gamma(rate, (arrivals.arrival_smoothness or 1.0) ** -0.5, generator)
    return poisson(rate, generator)
