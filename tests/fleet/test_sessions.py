"""Sessions in a world worked out by hand: prompts cost 1 ms per token, decode steps 10 ms, blocks hold 16 tokens.

A turn of P uncached prompt tokens and O output tokens that has the replica for itself takes P + 10 (O - 1) ms; then
P + O - 1 tokens are computed, of which whole blocks are cached.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sim
from sim.errors import ScenarioError
from sim.traffic.sessions import Session, Turn, Wait

LINEAR = {"model": "linear", "prefill_s_per_token": 1e-3, "step_s": 10e-3}


def run(traffic: dict[str, Any], **engine: Any) -> Any:
    scenario = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"version": "0.33", "async_scheduling": False, "block_tokens": 16, **engine},
        "cost": LINEAR,
        "traffic": {"arrivals": {"process": "burst"}, "prompt_tokens": 50, "output_tokens": 5, **traffic},
    }
    return sim.run(scenario)


def sessions(**keys: Any) -> dict[str, Any]:
    return {"turns": 2, "first_prompt_tokens": 100, "think_time": "2 s", **keys}


@pytest.fixture
def live(monkeypatch):
    """Runs given sessions instead of drawn ones."""

    def run_these(*given: Session, **engine: Any) -> Any:
        traffic = SimpleNamespace(
            in_sessions=True, limit=None, closed_concurrency=None, max_concurrency=None, counts_sessions=False,
            stops_at_s=None, sessions=lambda: iter(given), skips=(),
        )  # fmt: skip
        monkeypatch.setattr("sim.fleet.assembly.open_traffic", lambda *_: traffic)
        return run({"requests": 1}, **engine)

    return run_these


def turn(new: int, output: int, *waits: Wait, extends: int | None = None, not_before_s: float = 0.0) -> Turn:
    return Turn(new, output, output, extends=extends, waits=waits, not_before_s=not_before_s)


def test_a_second_turn_holds_the_first_and_finds_it_cached():
    """The first takes 100 + 40 ms. The second is sent 2 s later with 100 + 5 + 50 tokens, of which 104 are computed:
    6 blocks, 96 tokens. Its other 59 take 59 ms.
    """
    result = run({"requests": 2, "sessions": sessions()})
    requests = result.requests
    assert requests.prompt_tokens.tolist() == [100, 155]
    assert requests.cached_tokens.tolist() == [0, 96]
    assert requests.session_id.tolist() == [0, 0]
    assert requests.arrival_s.tolist() == pytest.approx([0, 2.14])
    assert requests.ttft_s.tolist() == pytest.approx([0.1, 0.059])
    assert requests.finish_s.tolist() == pytest.approx([0.14, 2.239])
    tally = result.summary["sessions"]
    assert (tally["started"], tally["completed"], tally["cut"], tally["unsent_requests"]) == (1, 1, 0, 0)
    assert tally["duration_s"]["mean"] == pytest.approx(2.239)


def test_without_a_cache_all_is_computed_again():
    requests = run({"requests": 2, "sessions": sessions()}, prefix_caching=False).requests
    assert requests.ttft_s.tolist() == pytest.approx([0.1, 0.155])


def test_a_tools_result_comes_after_its_delay():
    """Not after the user's thinking, and with tokens of its own: 100 + 5 + 7."""
    tools = {"delay": "300 ms", "tokens": 7}
    requests = run({"requests": 2, "sessions": sessions(tool_calls=tools)}).requests
    assert requests.arrival_s.tolist() == pytest.approx([0, 0.44])
    assert requests.prompt_tokens.tolist() == [100, 112]


def test_the_joining_turn_waits_for_the_slowest_branch(live):
    """Both branches are sent when the first turn ends, at 140 ms; each has 100 + 5 + 50 tokens, 96 of them cached. One
    step of 118 ms computes both prompts; 5 and 9 output tokens take 4 and 8 steps more. The join follows the longer,
    at 140 + 118 + 80 = 338 ms, with the prompt of the first turn, its answer, and 20 new tokens.
    """
    end = Wait(0, "completion", 0.0)
    requests = live(
        Session(0.0, 7, (
            turn(100, 5),
            turn(50, 5, end, extends=0),
            turn(50, 9, end, extends=0),
            turn(20, 5, Wait(1, "completion", 0.0), Wait(2, "completion", 0.0), extends=0),
        ))
    ).requests  # fmt: skip
    assert requests.session_id.tolist() == [7] * 4
    assert requests.arrival_s.tolist() == pytest.approx([0, 0.14, 0.14, 0.338])
    assert requests.prompt_tokens.tolist() == [100, 155, 155, 125]
    assert requests.cached_tokens.tolist() == [0, 96, 96, 96]


def test_delays_count_from_what_they_wait_for(live):
    """The first turn is sent at 1 s and ends at 1.14 s. 500 ms after its dispatch is 1.5 s, after its completion
    1.64 s; and a turn that may not be sent before 1 + 3 s waits until then.
    """
    requests = live(
        Session(1.0, 0, (
            turn(100, 5),
            turn(10, 1, Wait(0, "dispatch", 0.5)),
            turn(10, 1, Wait(0, "completion", 0.5)),
            turn(10, 1, Wait(0, "completion", 0.5), not_before_s=3.0),
        ))
    ).requests  # fmt: skip
    assert requests.arrival_s.tolist() == pytest.approx([1.0, 1.5, 1.64, 4.0])


def test_fan_out_as_a_scenario_says_it():
    """Turn 1, two sub-agents of two turns each, and a turn that joins them: 6 requests, whose prompts are 100; twice
    155, and 210 where the sub-agent goes on; and 155 again.
    """
    fan_out = {"after": 1, "branches": 2, "turns": 2}
    requests = run({"requests": 6, "sessions": sessions(fan_out=fan_out)}).requests
    assert requests.prompt_tokens.tolist() == [100, 155, 155, 210, 210, 155]
    assert requests.arrival_s.iloc[-1] == pytest.approx(requests.finish_s[:5].max())


def test_without_a_join_the_session_goes_on():
    """It does not wait for its sub-agents: the user's next turn comes 2 s after the first."""
    fan_out = {"after": 1, "branches": 2, "turns": 1, "join": False}
    requests = run({"requests": 4, "sessions": sessions(fan_out=fan_out)}).requests
    assert requests.arrival_s.tolist() == pytest.approx([0, 0.14, 0.14, 2.14])


def test_a_closed_loop_counts_whole_sessions():
    """One user: the second session begins when the first is over, thinking included."""
    arrivals = {"process": "closed", "concurrency": 1}
    requests = run({"requests": 4, "arrivals": arrivals, "sessions": sessions()}).requests
    assert requests.session_id.tolist() == [0, 0, 1, 1]
    assert requests.arrival_s.tolist() == pytest.approx([0, 2.14, 2.239, 4.379])


def test_a_closed_loop_of_requests_fills_the_time_users_think():
    """One request in flight: first turns take 140 ms each. That of the third session ends at 420 ms, and so on."""
    arrivals = {"process": "closed", "concurrency": 1, "of": "requests"}
    requests = run({"requests": 6, "arrivals": arrivals, "sessions": sessions()}).requests
    assert requests.session_id.tolist() == [0, 1, 2, 0, 1, 2]
    assert requests.arrival_s[:4].tolist() == pytest.approx([0, 0.14, 0.28, 2.14])
    ends = requests.finish_s.to_numpy()
    assert (requests.arrival_s.to_numpy()[1:] >= ends[:-1] - 1e-12).all()


def test_turns_under_way_go_before_new_sessions():
    """One request in flight, and no time to think: the second session is due at 50 ms, and waits until both turns of
    the first are done, at 140 + 99 ms.
    """
    arrivals = {"process": "constant", "rate": 20, "max_concurrency": 1}
    requests = run({"requests": 4, "arrivals": arrivals, "sessions": sessions(think_time=0)}).requests
    assert requests.session_id.tolist() == [0, 0, 1, 1]
    assert requests.arrival_s.tolist() == pytest.approx([0, 0.14, 0.239, 0.379])
    assert requests.client_wait_s.tolist() == pytest.approx([0, 0, 0.189, 0])


def test_littles_law_of_users_who_think():
    """N users who each wait R and think Z send X = N / (R + Z): here 8 users of 60 turns, one session each."""
    users, think_s, turns = 8, 0.5, 60
    traffic = {
        "arrivals": {"process": "closed", "concurrency": users},
        "requests": users * turns,
        "prompt_tokens": 4,
        "output_tokens": {"distribution": "uniform", "low": 1, "high": 40},
        "sessions": {"turns": turns, "think_time": {"distribution": "exponential", "mean": think_s}},
    }
    result = run(traffic)
    requests = result.requests
    spans_s = requests.groupby("session_id").agg(start=("arrival_s", "min"), end=("finish_s", "max"))
    busy_s = (spans_s.end - spans_s.start).sum()
    thought_s = busy_s - requests.e2e_s.sum()
    assert thought_s / (users * (turns - 1)) == pytest.approx(think_s, rel=0.1)
    window_s = spans_s.end.min()
    inside = requests[requests.finish_s <= window_s]
    cycle_s = inside.e2e_s.mean() + thought_s / (users * (turns - 1))
    assert len(inside) / window_s * cycle_s == pytest.approx(users, rel=0.05)
    assert result.summary["sessions"]["duration_s"]["mean"] == pytest.approx(busy_s / users)


def test_a_rejected_turn_takes_what_follows_with_it():
    """Prompts of 100, 155 and 210 tokens; with 200 the third is refused, and the fourth and fifth are never sent."""
    result = run({"requests": 5, "sessions": sessions(turns=5)}, max_model_len=200)
    assert result.requests.status.tolist() == ["completed", "completed", "rejected"]
    tally = result.summary["sessions"]
    assert (tally["started"], tally["completed"], tally["cut"], tally["unsent_requests"]) == (1, 0, 1, 2)


def test_the_next_prompt_holds_the_answer_really_given():
    """The first answer is cut at 103 - 100 tokens, so that the second prompt, 100 + 3 + 50, is refused."""
    requests = run({"requests": 2, "sessions": sessions()}, max_model_len=103).requests
    assert requests.prompt_tokens.tolist() == [100, 153]
    assert requests.status.tolist() == ["completed", "rejected"]


def test_no_turn_is_sent_when_the_load_is_over():
    """Turns are due at 0, 2.14, ... s; the load ends after 2 s."""
    result = run({"duration": "2 s", "requests": 5, "sessions": sessions(turns=5)})
    assert len(result.requests) == 1
    assert result.summary["sessions"]["unsent_requests"] == 4


def test_sessions_keep_their_replica():
    """Two sessions start at once on two replicas, and stay there; a prompt elsewhere would find nothing cached."""
    traffic = {"requests": 8, "sessions": sessions(turns=4)}
    loads = {
        "model": "llama-3.1-8b", "hardware": "h100-sxm", "cost": LINEAR,
        "traffic": {"arrivals": {"process": "burst"}, "prompt_tokens": 50, "output_tokens": 5, **traffic},
    }  # fmt: skip
    for router in ("session", "prefix"):
        requests = sim.run({**loads, "deployment": {"replicas": 2, "router": router}}).requests
        assert (requests.groupby("session_id").replica.nunique() == 1).all()
        assert requests.replica.nunique() == 2
        assert (requests.cached_tokens[requests.prompt_tokens > 100] > 0).all()


@pytest.mark.parametrize("name", ["think_time", "tool_calls"])
def test_delays_leave_lengths_as_they_are(name):
    """Each quantity has its own stream: who thinks or runs longer says the same."""
    base = {
        "turns": {"distribution": "uniform", "low": 1, "high": 6},
        "think_time": {"distribution": "exponential", "mean": 1},
        "tool_calls": {"probability": 0.5, "delay": "1 s"},
    }
    other = {
        "think_time": "3 s",
        "tool_calls": {"probability": 0.5, "delay": {"distribution": "uniform", "low": 0, "high": 9}},
    }
    lengths = {"prompt_tokens": {"distribution": "uniform", "low": 1, "high": 90}, "requests": 200}
    tables = [run({**lengths, "sessions": {**base, **changed}}).requests for changed in ({}, {name: other[name]})]
    said = [table.sort_values(["session_id", "prompt_tokens"])[["session_id", "prompt_tokens"]] for table in tables]
    assert np.array_equal(*said)
    assert not np.array_equal(*(table.arrival_s for table in tables))


def test_the_chat_example_answers_its_question(repo):
    """As its comment says: 85 % of prompt tokens are hits with 20 s of thinking, half with a minute."""
    path = repo / "workloads/chat_sessions.yaml"

    def hits(think_s: int) -> float:
        changes = {"traffic.sessions.think_time.mean": think_s, "traffic.duration": "15 min", "measure.warmup": "1 min"}
        return float(sim.run(path, overrides=changes).summary["kv"]["prefix_hit_rate"])

    assert hits(10) > 0.85
    assert hits(60) < 0.65


def test_the_agents_example_answers_its_question(repo):
    """As its comment says: 75 s with four sub-agents, 119 s with one that does their work."""
    path = repo / "workloads/agents.yaml"

    def task_s(**changes: Any) -> float:
        load = {"traffic.arrivals.concurrency": 16, "traffic.requests": 1600}
        overrides = load | {f"traffic.sessions.fan_out.{name}": value for name, value in changes.items()}
        tally = sim.run(path, overrides=overrides).summary["sessions"]
        assert tally["completed"] == tally["started"] == 80
        return float(tally["duration_s"]["mean"])

    assert task_s() == pytest.approx(75, rel=0.1)
    assert task_s(branches=1, turns=12) == pytest.approx(119, rel=0.1)


@pytest.mark.parametrize("chats", [{}, {"sessions": {"turns": 2}}])
def test_clients_who_are_only_rejected_are_told_so(chats):
    """They send one request after another at the same instant, and no duration ever passes."""
    load = {"arrivals": {"process": "closed", "concurrency": 3}, "duration": "1 s", "prompt_tokens": 500, **chats}
    with pytest.raises(ScenarioError, match=r"traffic.duration: never passes.*is rejected"):
        run(load, max_model_len=400)
