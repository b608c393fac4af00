"""Arrival processes: closed forms, ends, and that neither blocks nor counts change a value."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario.specs import TrafficSpec
from sim.traffic import Arrival, open_traffic
from sim.traffic.load import Traffic

TEN = {"distribution": "fixed", "value": 10}
POISSON = {"process": "poisson", "rate": 8}


def spec(arrivals=POISSON, **keys):
    return TrafficSpec.model_validate({"arrivals": arrivals, "prompt_tokens": TEN, "output_tokens": TEN} | keys)


def times_s(arrivals, *, seed=0, **keys):
    return np.array([arrival.time_s for arrival in open_traffic(spec(arrivals, **keys), Path(), seed)])


def test_an_arrival_is_plain_python():
    """No numpy scalar leaks into the engine: they are slow and overflow."""
    (arrival,) = open_traffic(spec(requests=1), Path(), 0)
    assert isinstance(arrival, Arrival)
    assert [type(field) for field in arrival] == [int, float, int, int, int, int, type(None)]
    assert arrival[2:] == (10, 10, 10, 0, None)


def test_poisson_gaps_are_exponential():
    """Mean 1 / rate, CV 1, and exp(-1) of the gaps above the mean."""
    gaps_s = np.diff(times_s(POISSON, requests=200_000), prepend=0.0)
    assert gaps_s.mean() == pytest.approx(1 / 8, rel=0.01)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, rel=0.01)
    assert (gaps_s > 1 / 8).mean() == pytest.approx(np.exp(-1), abs=0.005)


def test_poisson_gaps_are_independent():
    """No correlation between neighbours."""
    gaps_s = np.diff(times_s(POISSON, requests=200_000))
    assert abs(np.corrcoef(gaps_s[:-1], gaps_s[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("cv", [0.25, 1.0, 3.0])
def test_gamma_gaps_have_their_cv_at_the_same_rate(cv):
    gaps_s = np.diff(times_s({"process": "gamma", "rate": 5, "cv": cv}, requests=400_000), prepend=0.0)
    assert gaps_s.mean() == pytest.approx(0.2, rel=0.02)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.02)


def test_burstiness_is_one_over_cv_squared():
    by_cv = times_s({"process": "gamma", "rate": 5, "cv": 2.0}, requests=100)
    assert (times_s({"process": "gamma", "rate": 5, "burstiness": 0.25}, requests=100) == by_cv).all()


def test_constant_is_exact():
    """Request i at i / rate to the last bit, however far."""
    made = times_s({"process": "constant", "rate": 3}, requests=20_000)
    assert made.tolist() == [i / 3 for i in range(20_000)]


def test_burst_is_all_at_zero():
    assert times_s({"process": "burst"}, requests=9000).tolist() == [0.0] * 9000


def test_closed_names_its_clients():
    traffic = open_traffic(spec({"process": "closed", "concurrency": 4}, requests=7), Path(), 0)
    assert (traffic.closed_concurrency, traffic.max_concurrency, traffic.total) == (4, None, 7)
    assert [arrival.time_s for arrival in traffic] == [0.0] * 7


def test_a_closed_loop_by_duration_is_endless():
    """The fleet's clients stop it at ``stops_at_s``."""
    traffic = open_traffic(spec({"process": "closed", "concurrency": 4}, duration=60), Path(), 0)
    assert (traffic.stops_at_s, traffic.total) == (60, None)
    arrivals = iter(traffic)
    assert [next(arrivals).index for _ in range(20_000)] == list(range(20_000))


def test_max_concurrency_joins_open_arrivals():
    traffic = open_traffic(spec(POISSON | {"max_concurrency": 16}, requests=7), Path(), 0)
    assert (traffic.closed_concurrency, traffic.max_concurrency) == (None, 16)


def test_duration_ends_strictly_before():
    """At 2/s for 3 s the request at 3.0 s is not sent."""
    made = times_s({"process": "constant", "rate": 2}, duration=3)
    assert made.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_the_earlier_end_counts():
    by_both = times_s({"process": "constant", "rate": 2}, duration=3, requests=4)
    assert by_both.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert len(times_s({"process": "constant", "rate": 2}, duration=3, requests=400)) == 6


def test_duration_cuts_the_same_stream():
    long = times_s(POISSON, requests=20_000)
    cut = times_s(POISSON, duration=1500)
    assert 8192 < len(cut) < 20_000
    assert (cut == long[long < 1500]).all()


def test_a_duration_shorter_than_the_first_gap_is_empty():
    assert times_s({"process": "poisson", "rate": 0.001}, duration=1e-9).size == 0


def test_iterating_again_starts_anew():
    traffic = open_traffic(spec(requests=100), Path(), 3)
    assert list(traffic) == list(traffic)
    first, second = iter(traffic), iter(traffic)
    assert [next(first), next(first)] == [next(second), next(second)]


def test_seeds_differ():
    assert (times_s(POISSON, seed=1, requests=10) != times_s(POISSON, seed=2, requests=10)).all()


RICH = {
    "prompt_tokens": {"distribution": "lognormal", "mean": 1024, "p99": 8000},
    "output_tokens": {"distribution": "uniform", "low": 1, "high": 1000},
    "shared_prefix": {"tokens": 64, "groups": 5},
    "priorities": {0: 1.0, 5: 3.0},
}
PROCESSES = [
    POISSON,
    {"process": "gamma", "rate": 5, "cv": 3.0},
    {"process": "gamma", "rate": 5, "cv": 0.3},
    {"process": "constant", "rate": 7},
    {"process": "burst"},
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PROCESSES),
    st.integers(1, 400),
    st.integers(0, 2**70),
    st.integers(1, 97),
    st.integers(1, 400),
)
def test_neither_blocks_nor_counts_change_a_value(arrivals, requests, seed, block_requests, fewer):
    """The first n of more requests are the n requests, whatever the block they are drawn in."""
    whole = list(Traffic(spec(arrivals, requests=requests, **RICH), Path(), seed))
    count = min(fewer, requests)
    part = list(Traffic(spec(arrivals, requests=count, **RICH), Path(), seed, block_requests))
    assert part == whole[:count]
    assert [arrival.index for arrival in whole] == list(range(requests))
    times = [arrival.time_s for arrival in whole]
    assert times == sorted(times)


def test_blocks_join_without_a_seam():
    """Three default blocks equal one large one."""
    rich = spec({"process": "gamma", "rate": 5, "cv": 3.0}, requests=20_000, **RICH)
    assert list(Traffic(rich, Path(), 9)) == list(Traffic(rich, Path(), 9, 20_000))


def column(field, **keys):
    return [getattr(arrival, field) for arrival in open_traffic(spec(**({"requests": 50} | RICH | keys)), Path(), 4)]


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"arrivals": {"process": "gamma", "rate": 8, "cv": 2}}, {"time_s"}),
        ({"prompt_tokens": {"distribution": "normal", "mean": 500, "std": 90}}, {"prompt_tokens", "prompt"}),
        ({"output_tokens": {"distribution": "normal", "mean": 500, "std": 90}}, {"output_tokens", "max_output_tokens"}),
        ({"priorities": {1: 1.0, 2: 1.0}}, {"priority"}),
        ({"priorities": None}, {"priority"}),
        ({"shared_prefix": {"tokens": 64, "groups": 9}}, {"prompt"}),
        ({"shared_prefix": None}, {"prompt", "prompt_tokens"}),
    ],
)
def test_changing_one_part_leaves_the_others(change, moved):
    """Each quantity has its own stream."""
    for field in Arrival._fields:
        assert (column(field) != column(field, **change)) == (field in moved), field


def test_streams_are_uncorrelated():
    """Times, prompts and outputs of one seed share nothing."""
    lengths = {"distribution": "uniform", "low": 1, "high": 10**6}
    made = list(open_traffic(spec(requests=50_000, prompt_tokens=lengths, output_tokens=lengths), Path(), 0))
    gaps_s = np.diff([arrival.time_s for arrival in made], prepend=0.0)
    prompts = [arrival.prompt_tokens for arrival in made]
    outputs = [arrival.output_tokens for arrival in made]
    correlation = np.corrcoef([gaps_s, prompts, outputs])
    assert np.abs(correlation - np.eye(3)).max() < 0.02


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({}, "traffic.requests"),
        ({"arrivals": {"process": "burst"}, "duration": 5}, "traffic.requests"),
        ({"arrivals": {"process": "gamma", "rate": 1}, "requests": 1}, "traffic.arrivals.cv"),
        ({"arrivals": {"process": "gamma", "rate": 1, "cv": 1, "burstiness": 1}, "requests": 1}, "traffic.arrivals.cv"),
        ({"arrivals": {"process": "gamma", "rate": 1, "cv": 1e-200}, "requests": 1}, "traffic.arrivals.cv"),
        ({"arrivals": {"process": "gamma", "rate": 1, "burstiness": 1e-200}, "requests": 1}, "arrivals.burstiness"),
        ({"arrivals": {"process": "poisson", "rate": 1e-310}, "requests": 1}, "traffic.arrivals.rate"),
        ({"arrivals": {"process": "trace", "path": "x", "time_scale": 1e300}}, "traffic.arrivals.time_scale"),
        ({"requests": 1, "prompt_tokens": None}, "traffic.prompt_tokens"),
        ({"requests": 1, "priorities": {10**30: 1}}, "traffic.priorities"),
        ({"requests": 1, "priorities": {}}, "traffic.priorities"),
    ],
)
def test_the_impossible_is_refused_by_path(keys, path):
    with pytest.raises(ScenarioError, match=path) as caught:
        open_traffic(spec(**keys), Path(), 0)
    assert all(problem.cure for problem in caught.value.problems)


def test_all_faults_at_once():
    backwards = {"distribution": "uniform", "low": 9, "high": 3}
    with pytest.raises(ScenarioError) as caught:
        open_traffic(spec(prompt_tokens=backwards, output_tokens=backwards), Path(), 0)
    assert [problem.path for problem in caught.value.problems] == [
        "traffic.requests",
        "traffic.prompt_tokens.low",
        "traffic.output_tokens.low",
    ]


def test_a_set_of_prompts_is_sent_over_and_over():
    """2 groups of 3 prompts: 6 prompts, each twice in 12 requests, in the same order; 3 share each of 2 prefixes."""
    spec = TrafficSpec.model_validate(
        {
            "arrivals": {"process": "burst"},
            "requests": 12,
            "prompt_tokens": {"distribution": "uniform", "low": 10, "high": 99},
            "output_tokens": 1,
            "shared_prefix": {"tokens": 40, "groups": 2, "prompts_per_group": 3},
        }
    )
    sent = list(open_traffic(spec, Path(), 0))
    prompts = [arrival.prompt for arrival in sent]
    assert len(set(prompts)) == 6
    assert prompts[:6] == prompts[6:]
    assert sorted(prompt[0] for prompt in set(prompts)) == [("shared:0", 40)] * 3 + [("shared:1", 40)] * 3
    assert all(arrival.prompt_tokens == sum(tokens for _, tokens in arrival.prompt) for arrival in sent)
