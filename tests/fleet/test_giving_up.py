"""Clients that give up, in the world of ``test_sessions``: prompts cost 1 ms per token, decode steps 10 ms."""

from __future__ import annotations

from typing import Any

import pytest

import sim

LINEAR = {"model": "linear", "prefill_s_per_token": 1e-3, "step_s": 10e-3}


def scenario(traffic: dict[str, Any], **engine: Any) -> dict[str, Any]:
    return {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"version": "0.33", "async_scheduling": False, "block_tokens": 16, **engine},
        "cost": LINEAR,
        "traffic": {"prompt_tokens": 200, "output_tokens": 100, **traffic},
        "slo": {"ttft": "10 s"},
    }


def test_a_time_out_frees_blocks_for_the_next():
    """21 blocks hold one request of 200 + 100 tokens, not two prompts. The first is given up at 505 ms, within a step:
    it got tokens at 200, 210, ..., 500 ms. The engine drops it when that step ends, and at 510 ms the second begins,
    which was sent at 250 ms and is given up 505 ms later, with tokens at 710, ..., 750 ms.
    """
    arrivals = {"process": "constant", "rate": 4}
    traffic = {"arrivals": arrivals, "requests": 2, "client": {"timeout": "505 ms"}}
    result = sim.run(scenario(traffic, kv_blocks=22, max_model_len=320, prefix_caching=False))
    requests = result.requests
    assert requests.status.tolist() == ["failed", "failed"]
    assert requests.output_tokens.tolist() == [31, 5]
    assert requests.scheduled_s.tolist() == pytest.approx([0, 0.51])
    assert requests.finish_s.isna().all()
    assert requests.decode_s.tolist() == pytest.approx([0.3, 0.04])
    assert result.steps.output_tokens.sum() == 36
    assert result.summary["requests"] | {"truncated": 0} == {
        "submitted": 2, "completed": 0, "rejected": 0, "unfinished": 0, "failed": 2, "cancelled": 0, "truncated": 0,
    }  # fmt: skip
    assert result.summary["slo"]["attainment"] == 0


def test_who_gives_up_in_the_queue_is_never_served():
    """One request at a time, each 200 + 990 ms. The second begins at 1.19 s, and when all give up at 1.495 s it has the
    tokens of 1.39, ..., 1.49 s; the third has never left the queue.
    """
    traffic = {"arrivals": {"process": "burst"}, "requests": 3}
    whole = sim.run(scenario(traffic, max_sequences=1)).requests
    assert whole.scheduled_s.tolist() == pytest.approx([0, 1.19, 2.38])
    impatient = traffic | {"client": {"timeout": "1.495 s"}}
    requests = sim.run(scenario(impatient, max_sequences=1)).requests
    assert requests.status.tolist() == ["completed", "failed", "failed"]
    assert requests.output_tokens.tolist() == [100, 11, 0]
    assert requests.scheduled_s.isna().tolist() == [False, False, True]


def test_users_cancel_as_often_as_they_say():
    """Half of 400 requests, 100 ms after the send: during the prompt, before any token."""
    cancellation = {"probability": 0.5, "after": "100 ms"}
    traffic = {"arrivals": {"process": "constant", "rate": 0.5}, "requests": 400, "cancellation": cancellation}
    result = sim.run(scenario(traffic | {"output_tokens": 2}))
    counts = result.summary["requests"]
    assert counts["failed"] == counts["cancelled"]
    assert counts["cancelled"] + counts["completed"] == 400
    assert 160 < counts["cancelled"] < 240
    assert result.requests.output_tokens[result.requests.status == "cancelled"].sum() == 0


def test_another_probability_leaves_the_rest_as_it_was():
    traffic = {
        "arrivals": {"process": "poisson", "rate": 2},
        "requests": 50,
        "output_tokens": {"distribution": "uniform", "low": 1, "high": 50},
    }
    tables = [
        sim.run(scenario(traffic | {"cancellation": {"probability": share, "after": "1 ms"}})).requests
        for share in (0.1, 0.9)
    ]
    assert tables[0].arrival_s.equals(tables[1].arrival_s)
    both = (tables[0].status == "completed") & (tables[1].status == "completed")
    assert tables[0].output_tokens[both].equals(tables[1].output_tokens[both])
    assert (tables[0].status == "cancelled")[tables[1].status == "completed"].sum() == 0


def test_a_free_client_sends_the_next_request_when_one_gives_up():
    """A closed loop of one client that waits 505 ms: requests are sent at 0, 0.505, 1.01 s."""
    traffic = {
        "arrivals": {"process": "closed", "concurrency": 1}, "requests": 3, "client": {"timeout": "505 ms"},
    }  # fmt: skip
    requests = sim.run(scenario(traffic)).requests
    assert requests.arrival_s.tolist() == pytest.approx([0, 0.505, 1.01])


def test_a_request_given_up_on_its_way_never_arrives(repo):
    """The API server takes some milliseconds to hand a request over."""
    changes = {"traffic.requests": 5, "traffic.client": {"timeout": "1 us"}}
    result = sim.run(repo / "workloads/chat.yaml", overrides=changes)
    assert result.requests.received_s.isna().all()
    assert (result.requests.status == "failed").all()
    assert not len(result.steps)


def test_a_turn_given_up_ends_its_session():
    """The first turn times out at 500 ms; the second would have held its answer."""
    traffic = {
        "arrivals": {"process": "burst"}, "requests": 3, "sessions": {"turns": 3}, "client": {"timeout": "500 ms"},
    }  # fmt: skip
    result = sim.run(scenario(traffic))
    assert len(result.requests) == 1
    assert result.summary["sessions"]["unsent_requests"] == 2
