"""Varying rates: inversion by hand, counts against the integral of the rate, blocks, and constant special cases."""

import math
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from sim.errors import ScenarioError
from sim.scenario import specs
from sim.scenario.specs import TrafficSpec
from sim.traffic.load import Traffic
from sim.traffic.rates import diurnal, ramp, spikes, steps
from sim.traffic.streams import generator

EVERY = {
    "linear": {"process": "ramp", "from": 0, "to": 40, "over": 100},
    "falling": {"process": "ramp", "from": 40, "to": 1, "over": 100},
    "exponential": {"process": "ramp", "from": 1, "to": 64, "over": 100, "shape": "exponential"},
    "diurnal": {"process": "diurnal", "mean": 10, "amplitude": 10, "period": 60, "phase": 7},
    "spikes": {"process": "spikes", "base": 0, "peak": 50, "every": 20, "length": 4},
    "spikes at": {"process": "spikes", "base": 5, "peak": 50, "at": [0, 30, 34], "length": 4},
    "piecewise": {"process": "piecewise", "times": [0, 10, 20], "rates": [5, 0, 20]},
    "mmpp": {"process": "mmpp", "rates": [2, 30, 0], "dwell": [5, 3, 2]},
}


def arrivals(name):
    return TypeAdapter(specs.Arrivals).validate_python(EVERY[name])


def times_s(process, *, requests=20_000, seed=0, block=8192):
    keys = {"arrivals": process, "requests": requests, "prompt_tokens": 10, "output_tokens": 10}
    return np.array([arrival.time_s for arrival in Traffic(TrafficSpec.model_validate(keys), Path(), seed, block)])


def test_a_linear_ramp_is_inverted_by_hand():
    """From 0 to 40 in 100 s: L(t) = 0.2 t^2, so 20 are reached after 10 s, 2,000 at 100 s, and 40 a second after."""
    assert ramp(arrivals("linear"))(np.array([20.0, 2000.0, 2080.0])) == pytest.approx([10, 100, 102])


def test_an_exponential_ramp_doubles_in_equal_times():
    """1 to 64 in 100 s doubles every 100/6 s: between doublings arrive 1, 2, 4, ... times (100/6) / ln 2."""
    first = 100 / 6 / math.log(2)
    reached = np.array([1, 3, 7, 63]) * first
    assert ramp(arrivals("exponential"))(reached) == pytest.approx(np.array([1, 2, 3, 6]) * 100 / 6)
    assert ramp(arrivals("exponential"))(63 * first + np.array([64.0])) == pytest.approx([101])


def test_a_day_is_inverted_by_hand():
    """Mean 10, amplitude 10, period 60 from phase 0: half a period has 300 + 2 * 10 * 60 / 2 pi, a whole one 600."""
    day = diurnal(specs.Diurnal(process="diurnal", mean=10, amplitude=10, period=60))
    half = 300 + 1200 / (2 * math.pi)
    assert day(np.array([half, 600, 1200 + half])) == pytest.approx([30, 60, 150], abs=1e-4)


def test_spikes_are_inverted_by_hand():
    """Nothing for 16 s, then 50 a second for 4: the 100th of the unit stream comes 2 s into the first spike, the 250th
    2 ... 1 s into the second one, whose first 200 are the first spike's.
    """
    assert spikes(arrivals("spikes"))(np.array([100.0, 250.0])) == pytest.approx([18, 37])


def test_spikes_at_times_may_touch():
    """50 a second to 4 s, 5 to 30 s (130), 50 to 38 s (400, one spike after the other), then 5."""
    assert spikes(arrivals("spikes at"))(np.array([200.0, 330, 730, 735])) == pytest.approx([4, 30, 38, 39])


def test_a_pause_is_stepped_over():
    """5 a second for 10 s, a pause of 10 s, 20 a second: the 50th ends the first piece, the 51st comes after 20 s."""
    assert steps([0, 10, 20], [5, 0, 20])(np.array([50.0, 51.0])) == pytest.approx([10, 20.05])


@pytest.mark.parametrize("name", EVERY)
def test_blocks_change_no_time_and_times_ascend(name):
    whole = times_s(EVERY[name], requests=3000)
    assert (times_s(EVERY[name], requests=3000, block=7) == whole).all()
    assert (np.diff(whole) >= 0).all()


EXPECTED = {
    "linear": lambda t: np.where(t < 100, 0.2 * t**2, 2000 + 40 * (t - 100)),
    "falling": lambda t: np.where(t < 100, 40 * t - 0.195 * t**2, 2050 + t - 100),
    "exponential": lambda t: np.where(
        t < 100, (64 ** (t / 100) - 1) * 100 / math.log(64), 6300 / math.log(64) + 64 * (t - 100)
    ),
    "diurnal": lambda t: (
        10 * t + 600 / (2 * math.pi) * (math.cos(2 * math.pi * 7 / 60) - np.cos(2 * math.pi * (t + 7) / 60))
    ),
    "spikes": lambda t: 200 * (t // 20) + 50 * np.maximum(t % 20 - 16, 0),
    "piecewise": lambda t: 5 * np.minimum(t, 10) + 20 * np.maximum(t - 20, 0),
}
"""The integral of the rate, written down anew."""


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_follow_the_integral_of_the_rate(name):
    """Through the integral, arrivals are a unit Poisson stream: given the last, the others are uniform below it, by
    Kolmogorov and Smirnov (1.63 / sqrt n is exceeded by one seed in a hundred).
    """
    reached = EXPECTED[name](times_s(EVERY[name], requests=4000))
    uniform = reached[:-1] / reached[-1]
    steps_up = np.arange(1, len(uniform) + 1) / len(uniform)
    distance = np.maximum(steps_up - uniform, uniform - steps_up + 1 / len(uniform)).max()
    assert distance < 1.63 / math.sqrt(len(uniform))
    assert reached[-1] == pytest.approx(4000, abs=4 * math.sqrt(4000))


@pytest.mark.parametrize(
    "process",
    [
        {"process": "ramp", "from": 8, "to": 8, "over": 10},
        {"process": "ramp", "from": 8, "to": 8, "over": 10, "shape": "exponential"},
        {"process": "diurnal", "mean": 8, "amplitude": 0, "period": 60},
        {"process": "spikes", "base": 8, "peak": 8, "every": 10, "length": 1},
        {"process": "piecewise", "times": [0], "rates": [8]},
        {"process": "mmpp", "rates": [8, 8], "dwell": [1, 2]},
    ],
    ids=lambda process: process["process"],
)
def test_a_constant_rate_is_poisson(process):
    """The same draws of the same stream, so the same times but for rounding."""
    assert times_s(process, requests=5000) == pytest.approx(times_s({"process": "poisson", "rate": 8}, requests=5000))


def test_another_amplitude_moves_arrivals_and_reshuffles_nothing():
    """A little more swing is a little shift: at most dL / least rate = 0.1 * 60 / pi / 5."""
    small, large = (
        times_s({"process": "diurnal", "mean": 10, "amplitude": swing, "period": 60}, requests=2000)
        for swing in (4.9, 5.0)
    )
    assert 0 < np.abs(small - large).max() < 0.1 * 60 / math.pi / 5


def test_a_modulated_process_has_its_mean_rate_and_its_burstiness():
    """Two states of equal mean stay 1 s at 2 and 18 a second: mean 10. Counts over long windows have the index of
    dispersion 1 + 2 v / (m s), with v = 8^2 the rate's variance, s = 1/1 + 1/1 its decay: 1 + 2 * 64 / 20 = 7.4.
    """
    times = times_s({"process": "mmpp", "rates": [2, 18], "dwell": [1, 1]}, requests=400_000)
    assert len(times) / times[-1] == pytest.approx(10, rel=0.03)
    counts = np.histogram(times, np.arange(0, times[-1] - 50, 50))[0]
    assert counts.var() / counts.mean() == pytest.approx(7.4, rel=0.2)


def test_states_of_a_modulated_process_have_their_own_stream():
    """Other rates in the same states: the stays are as they were, so that silence is at the same times."""
    first, second = (
        times_s({"process": "mmpp", "rates": [rate, 0], "dwell": [4, 4]}, requests=500 * rate // 20)
        for rate in (20, 200)
    )
    quiet = max(zip(np.diff(first), first, first[1:], strict=False))
    inside = (second > quiet[1] + 0.5) & (second < quiet[2] - 0.5)
    assert second[-1] > quiet[2] or first[-1] > 0
    assert not inside.any()


FAULTS = [
    ({"process": "ramp", "from": 0, "to": 8, "over": 10, "shape": "exponential"}, "traffic.arrivals.from"),
    ({"process": "ramp", "from": 1, "to": 1e-9, "over": 10}, "traffic.arrivals.to"),
    ({"process": "diurnal", "mean": 8, "amplitude": 9}, "traffic.arrivals.amplitude"),
    ({"process": "spikes", "base": 1, "peak": 9, "length": 1}, "traffic.arrivals.every"),
    ({"process": "spikes", "base": 1, "peak": 9, "length": 5, "every": 4}, "traffic.arrivals.length"),
    ({"process": "spikes", "base": 0, "peak": 9, "length": 1, "at": [3]}, "traffic.arrivals.base"),
    ({"process": "spikes", "base": 1, "peak": 9, "length": 2, "at": [3, 4]}, "traffic.arrivals.length"),
    ({"process": "piecewise", "times": [1], "rates": [1]}, "traffic.arrivals.times"),
    ({"process": "piecewise", "times": [0, 5, 5], "rates": [1, 1, 1]}, "traffic.arrivals.times"),
    ({"process": "piecewise", "times": [0, 5], "rates": [1, 0]}, "traffic.arrivals.rates"),
    ({"process": "mmpp", "rates": [1, 2, 3], "dwell": [1, 2]}, "traffic.arrivals.dwell"),
    ({"process": "mmpp", "rates": [0, 0], "dwell": [1, 2]}, "traffic.arrivals.rates"),
]


@pytest.mark.parametrize(("process", "key"), FAULTS)
def test_impossible_rates_are_refused(process, key):
    with pytest.raises(ScenarioError, match=key):
        times_s(process, requests=10)


def test_draws_are_one_per_request():
    """The n-th arrival is where the integral reaches the n-th sum of the stream named arrivals."""
    sums = np.cumsum(generator(3, "arrivals").standard_exponential(100))
    assert (0.2 * times_s(EVERY["linear"], requests=100, seed=3) ** 2) == pytest.approx(sums)
