"""Routers on replicas whose load is known."""

from types import SimpleNamespace

import numpy as np
import pytest

import sim
from sim.engine.request import Request
from sim.fleet.router import LeastOutstanding, PowerOfTwo, Random, RoundRobin, build_router

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
    names = ("round-robin", "random", "least-outstanding", "power-of-two")
    assert [type(build_router(name, generator)).__name__ for name in names] == [
        "RoundRobin",
        "Random",
        "LeastOutstanding",
        "PowerOfTwo",
    ]


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
