"""Routers on replicas whose load is known."""

from types import SimpleNamespace

import numpy as np
import pytest

import sim
from sim.engine.request import Request
from sim.errors import ScenarioError
from sim.fleet.router import (
    LeastOutstanding,
    LongestPrefix,
    PowerOfTwo,
    Random,
    RoundRobin,
    Sticky,
    Weighted,
    build_router,
)

ANY = (Request(0, 10, 1, order=0), None)
"""A request that is a session of its own."""


def fleet(*outstanding):
    return [SimpleNamespace(outstanding=count) for count in outstanding]


def test_round_robin_takes_each_in_turn():
    router = RoundRobin()
    assert [router.pick(fleet(9, 0, 5), *ANY) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_least_outstanding_takes_the_emptiest_and_the_first_of_equals():
    assert LeastOutstanding().pick(fleet(3, 1, 2), *ANY) == 1
    assert LeastOutstanding().pick(fleet(2, 1, 1), *ANY) == 1


def test_random_spreads_evenly():
    router = Random(np.random.default_rng(0))
    counts = np.bincount([router.pick(fleet(0, 0, 0, 0), *ANY) for _ in range(4000)], minlength=4)
    assert counts.min() > 900


def test_power_of_two_never_takes_the_fullest_of_many():
    router = PowerOfTwo(np.random.default_rng(0))
    assert {router.pick(fleet(5, 9, 1, 3), *ANY) for _ in range(200)} == {0, 2, 3}
    assert PowerOfTwo(np.random.default_rng(0)).pick(fleet(7), *ANY) == 0


def test_every_name_builds_its_router():
    generator = np.random.default_rng(0)
    names = ("round-robin", "random", "least-outstanding", "power-of-two", "session", "prefix", "weighted")
    assert [type(build_router(name, generator, (2, 1))).__name__ for name in names] == [
        "RoundRobin",
        "Random",
        "LeastOutstanding",
        "PowerOfTwo",
        "Sticky",
        "LongestPrefix",
        "Weighted",
    ]


def test_a_session_stays_where_it_began():
    """Each begins on the emptiest replica; a request that is a session of its own goes there too."""
    router, request = Sticky(), ANY[0]
    assert router.pick(fleet(3, 1, 2), request, 7) == 1
    assert router.pick(fleet(0, 9, 2), request, 8) == 0
    assert [router.pick(fleet(0, 9, 2), request, session) for session in (7, 8, None)] == [1, 0, 0]


def test_prefixes_go_where_most_of_them_is_cached():
    """Of equals the emptiest, then the first."""

    def replicas(*told):
        return [
            SimpleNamespace(outstanding=count, cached_tokens=lambda _, tokens=tokens: tokens) for count, tokens in told
        ]

    pick = LongestPrefix().pick
    assert pick(replicas((0, 16), (9, 64), (0, 0)), *ANY) == 1
    assert pick(replicas((5, 64), (2, 64), (2, 64)), *ANY) == 1


def test_weights_are_met_evenly():
    """5, 1 and 1 of every seven, as nginx spreads them."""
    router = Weighted((5, 1, 1))
    assert [router.pick(fleet(0, 0, 0), *ANY) for _ in range(7)] == [0, 0, 1, 0, 2, 0, 0]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "sarathi", "llama.cpp"])
def test_the_prefix_router_finds_what_engines_have_cached(engine):
    """Two prompts in turn, one at a time, on two replicas: each is computed once, and then found where it is."""
    shared = {"tokens": 640, "groups": 2, "prompts_per_group": 1}
    scenario = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"name": engine, "prefix_caching": True},
        "deployment": {"replicas": 2, "router": "prefix"},
        "traffic": {
            "arrivals": {"process": "closed", "concurrency": 1},
            "requests": 20,
            "prompt_tokens": 64,
            "output_tokens": 2,
            "shared_prefix": shared,
        },
    }
    requests = sim.run(scenario).requests
    assert (requests.cached_tokens == 0).sum() == 2
    assert (requests.cached_tokens > 600).sum() == 18


def test_weights_are_one_per_replica():
    for deployment, problem in (
        ({"replicas": 2, "router": "weighted"}, "deployment.weights: missing"),
        ({"replicas": 2, "router": "weighted", "weights": [1]}, "deployment.weights: 1 weights for 2 replicas"),
        ({"replicas": 2, "weights": [2, 1]}, "deployment.weights: has no effect"),
    ):
        with pytest.raises(ScenarioError, match=problem):
            sim.run("chat", overrides={"deployment": deployment})
    changes = {"deployment": {"replicas": 2, "router": "weighted", "weights": [2, 1]}, "traffic.requests": 30}
    assert sim.run("chat", overrides=changes).requests.replica.value_counts().to_dict() == {0: 20, 1: 10}


@pytest.mark.parametrize("router", ["round-robin", "random", "least-outstanding", "power-of-two"])
def test_replicas_share_the_load(router):
    """Knowing the load beats not knowing it: nobody idles while another has twice as much for long."""
    changes = {"deployment": {"replicas": 4, "router": router}, "traffic.requests": 400, "traffic.arrivals.rate": 40}
    requests = sim.run("chat", overrides=changes).requests
    shares = requests.groupby("replica").size() / len(requests)
    assert len(shares) == 4
    assert shares.min() > 0.15


def test_a_front_end_takes_in_one_request_at_a_time():
    """The API server takes in one request per 1.9 ms, so a burst of ten is received over 17.1 ms."""
    changes = {"traffic.arrivals": {"process": "burst"}, "traffic.requests": 10}
    received_s = sim.run("chat", overrides=changes).requests.received_s
    assert received_s.diff().dropna().to_list() == pytest.approx([1.9e-3] * 9)
