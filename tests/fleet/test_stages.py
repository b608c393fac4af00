"""The way to the engine and back, by hand, with a linear cost; and streaming in groups."""

import numpy as np
import pytest

from sim.api import load, run
from sim.fleet import simulate
from sim.results.requests import frame
from sim.results.streams import streams_of

WORLD = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", "version": "0.11", "async_scheduling": False},
    "traffic": {"arrivals": {"process": "burst"}, "requests": 1, "prompt_tokens": 10, "output_tokens": 5},
    "cost": {"model": "linear", "prefill_step_s": 1.0, "step_s": 0.25},
}


def requests_of(client, **traffic):
    world = {**WORLD, "traffic": {**WORLD["traffic"], **traffic, "client": client}}
    return run(world)


def test_one_requests_stages_by_hand():
    """Out 0.1, tokenised in 0.02 + 10 x 0.001, prefill 1, four decodes of 0.25, text 0.03, back 0.1.

    TTFT = 0.1 + 0.03 + 1 + 0.13 = 1.26; E2E = TTFT + 4 x 0.25; the way back moves both, so TPOT is 0.25.
    """
    done = requests_of({"network": 0.1, "tokenise": 0.02, "tokenise_per_token": 0.001, "detokenise": 0.03})
    request = done.requests.iloc[0]
    assert request.ttft_s == pytest.approx(1.26)
    assert request.e2e_s == pytest.approx(2.26)
    assert request.tpot_s == pytest.approx(0.25)
    assert request.dispatch_s == pytest.approx(0.13)
    assert request.return_s == pytest.approx(0.13)
    parts = request[["dispatch_s", "queue_s", "prefill_s", "prefill_stall_s", "return_s"]]
    assert parts.sum() == pytest.approx(request.ttft_s)
    assert done.summary["duration_s"] == pytest.approx(2.26)


def test_a_closed_client_sends_again_when_the_answer_is_back():
    """A round is out 0.2, prefill 1, one decode 0.25, back 0.2 = 1.65 s."""
    client = {"network": 0.2}
    closed = {"process": "closed", "concurrency": 1}
    requests = requests_of(client, arrivals=closed, requests=3, output_tokens=2).requests
    assert requests.arrival_s.tolist() == pytest.approx([0.0, 1.65, 3.3])
    assert requests.e2e_s.tolist() == pytest.approx([1.65] * 3)


def test_requests_may_overtake_each_other_on_the_way():
    """With random delays the engine gets them in order of receipt; nobody is lost, and parts sum."""
    client = {"network": {"distribution": "exponential", "mean": 0.5}}
    arrivals = {"process": "constant", "rate": 10}
    requests = requests_of(client, arrivals=arrivals, requests=60).requests
    assert (requests.status == "completed").all()
    assert (np.diff(requests.received_s) < 0).any()
    parts = requests[["dispatch_s", "queue_s", "prefill_s", "prefill_stall_s", "return_s"]].sum(axis=1)
    assert np.allclose(parts, requests.ttft_s)
    assert requests.return_s.mean() == pytest.approx(0.5, rel=0.35)


def test_one_stages_distribution_leaves_the_others_draws_alone():
    """Streams are apart: with another tokenisation the network's delays are the same."""
    network = {"distribution": "exponential", "mean": 0.5}
    plain = requests_of({"network": network}, requests=20).requests
    other = requests_of({"network": network, "tokenise": {"distribution": "uniform", "low": 0, "high": 3}}, requests=20)
    assert np.array_equal(plain.return_s, other.requests.return_s)
    assert not np.allclose(plain.dispatch_s, other.requests.dispatch_s)


def test_routers_count_what_is_on_the_way():
    """Four requests at once, half a second from the server: two for each replica."""
    world = {**WORLD, "deployment": {"replicas": 2, "router": "least-outstanding"}}
    world["traffic"] = {**WORLD["traffic"], "requests": 4, "client": {"network": 0.5}}
    assert run(world).requests.replica.tolist() == [0, 1, 0, 1]


def test_a_client_that_leaves_before_its_request_arrives_costs_no_step():
    done = requests_of({"network": 2.0, "timeout": 1.0})
    assert done.requests.status.tolist() == ["failed"]
    assert len(done.steps) == 0


@pytest.mark.parametrize("rate", [5, 40])
def test_fast_and_plain_runs_are_equal(rate):
    overrides = {
        "traffic.client": {
            "network": {"distribution": "lognormal", "mean": 0.05, "sigma": 1.0},
            "tokenise": {"distribution": "exponential", "mean": 0.02},
            "timeout": 20.0,
        },
        "traffic.requests": 300,
        "traffic.arrivals.rate": rate,
    }
    loaded = load("chat", overrides=overrides)
    fast, plain = simulate(loaded), simulate(loaded, plain=True)
    assert frame(fast.requests).equals(frame(plain.requests))
    assert fast.steps.table.to_pandas().equals(plain.steps.table.to_pandas())


def test_groups_by_hand():
    """Intervals of 3: the first token alone, then three each, and the rest with the end."""
    streams = streams_of([(0.0, (1, 2, 3, 4, 5, 6, 7, 8, 9), (1,) * 9, 10, 9), (0.0, (1.5,), (1,), 10, 1)])
    grouped = streams.grouped(3)
    assert grouped.chunk_s.tolist() == [1, 4, 7, 9, 1.5]
    assert grouped.chunk_tokens.tolist() == [1, 3, 3, 2, 1]
    assert grouped.offsets.tolist() == [0, 4, 5]
    assert streams.grouped(1) is streams


def test_groups_of_speculative_bursts_are_sent_as_soon_as_they_are_full():
    """Chunks of 1, 2, 2, 4, 1: two and two make four (at 3), four at once (at 4), one with the end."""
    grouped = streams_of([(0.0, (1, 2, 3, 4, 5), (1, 2, 2, 4, 1), 10, 10)]).grouped(4)
    assert grouped.chunk_s.tolist() == [1, 3, 4, 5]
    assert grouped.chunk_tokens.tolist() == [1, 4, 4, 1]


def test_streaming_in_groups_moves_gaps_and_nothing_else():
    """Five tokens, a group of 4 after the first: one gap of 4 x 0.25."""
    each, grouped = (requests_of({"stream_interval": interval}).summary for interval in (1, 4))
    assert each["itl_s"]["mean"] == pytest.approx(0.25)
    assert grouped["itl_s"]["mean"] == pytest.approx(1.0)
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert each[metric] == grouped[metric]
