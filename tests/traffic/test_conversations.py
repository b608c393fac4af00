"""Sessions as they are drawn, and what their prompts share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sim.errors import ScenarioError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.load import Traffic
from sim.traffic.sessions import planned_tokens

UNIFORM = {"distribution": "uniform", "low": 1, "high": 9}


def traffic(seed: int = 0, **keys: object) -> Traffic:
    described = {"arrivals": {"process": "constant", "rate": 1}, "prompt_tokens": 10, "output_tokens": 5, **keys}
    return open_traffic(TrafficSpec.model_validate(described), Path(), seed)


def test_a_chain_extends_turn_by_turn():
    """Prompts of 30, 30 + 5 + 10, and 45 + 5 + 10 tokens."""
    (session,) = traffic(requests=3, sessions={"turns": 3, "first_prompt_tokens": 30, "think_time": "2 s"}).sessions()
    assert [turn.extends for turn in session.turns] == [None, 0, 1]
    assert [turn.waits for turn in session.turns] == [(), ((0, "completion", 2.0),), ((1, "completion", 2.0),)]
    assert list(planned_tokens(session)) == [(30, 5), (45, 5), (60, 5)]


def test_requests_are_counted_not_sessions():
    """10 requests are two sessions of 4 and the beginning of a third."""
    made = list(traffic(requests=10, sessions={"turns": 4}).sessions())
    assert [len(session.turns) for session in made] == [4, 4, 2]
    assert [session.time_s for session in made] == [0, 1, 2]


def test_sessions_begin_before_the_load_ends():
    assert len(list(traffic(duration="3.5 s", sessions={"turns": 4}).sessions())) == 4


def test_sub_agents_stand_between_the_turns_of_their_session():
    fan_out = {"after": 2, "branches": 2, "turns": 2}
    (session,) = traffic(
        requests=7, sessions={"turns": 3, "tool_calls": {"delay": 1.5, "tokens": 3}, "fan_out": fan_out}
    ).sessions()
    assert [turn.extends for turn in session.turns] == [None, 0, 1, 2, 1, 4, 1]
    assert [turn.new_tokens for turn in session.turns] == [10, 3, 10, 3, 10, 3, 10]
    assert session.turns[3].waits == ((2, "completion", 1.5),)
    assert session.turns[4].waits == ((1, "completion", 0.0),)
    assert session.turns[6].waits == ((3, "completion", 0.0), (5, "completion", 0.0))


def test_sessions_too_short_for_it_send_nobody_out():
    fan_out = {"after": 3, "branches": 2}
    made = traffic(requests=400, sessions={"turns": UNIFORM, "fan_out": fan_out}).sessions()
    for session in [*made][:-1]:
        own = [turn for turn in session.turns if turn.extends is None or len(turn.waits) > 0]
        branches = [turn for turn in own if turn.extends == 2]
        assert len(branches) == (3 if len(session.turns) > 3 else 0)


def test_iterating_again_starts_anew():
    load = traffic(requests=500, sessions={"turns": UNIFORM, "think_time": {"distribution": "exponential", "mean": 1}})
    assert list(load.sessions()) == list(load.sessions())


def test_more_requests_leave_the_first_as_they_were():
    keys = {"prompt_tokens": UNIFORM, "sessions": {"turns": UNIFORM}}
    short, long = (list(traffic(requests=requests, **keys).sessions()) for requests in (100, 9000))
    assert short[:-1] == long[: len(short) - 1]


def test_a_cap_bounds_every_answer():
    (session,) = traffic(requests=2, max_output_tokens=4, sessions={"turns": 2}).sessions()
    assert {(turn.output_tokens, turn.max_output_tokens) for turn in session.turns} == {(4, 4)}


def test_a_session_has_one_group_and_one_priority():
    (session, *_) = traffic(
        requests=9, sessions={"turns": 3}, shared_prefix={"tokens": 7, "groups": 5}, priorities={0: 1, 3: 1}
    ).sessions()
    (shared, own) = session.turns[0].pieces
    assert (shared[0].partition(":")[0], shared[1], own[1]) == ("shared", 7, 10)
    assert session.turns[0].new_tokens == 17
    assert len({turn.priority for turn in session.turns}) == 1


def test_zipf_groups_by_their_rank():
    """With alpha 1 and 4 groups the shares are 1, 1/2, 1/3, 1/4 of 12/25."""
    shared = {"tokens": 7, "groups": 4, "popularity": {"distribution": "zipf", "alpha": 1}}
    groups = Counter(arrival.prompt[0][0] for arrival in traffic(requests=50_000, shared_prefix=shared))
    shares = [groups[f"shared:{rank}"] / 50_000 for rank in range(4)]
    assert shares == pytest.approx([12 / 25 / k for k in (1, 2, 3, 4)], abs=0.01)


def test_whole_prompts_repeat_with_their_lengths():
    shared = {"tokens": 7, "groups": 3, "prompts_per_group": 4}
    prompts = [arrival.prompt for arrival in traffic(requests=2000, prompt_tokens=UNIFORM, shared_prefix=shared)]
    assert len(set(prompts)) == 12
    assert len({prompt[1][0] for prompt in prompts}) == 12
    assert all(sum(tokens for _, tokens in prompt) == prompt[1][1] + 7 for prompt in prompts)


def test_without_popularity_the_groups_are_those_of_before():
    """Uniform groups come straight from their stream."""
    from sim.traffic.streams import generator

    groups = generator(3, "shared_prefix").integers(5, size=20)
    arrivals = traffic(seed=3, requests=20, shared_prefix={"tokens": 7, "groups": 5})
    assert [arrival.prompt[0][0] for arrival in arrivals] == [f"shared:{group}" for group in groups]


@pytest.mark.parametrize(
    ("delay", "mean_s", "cv"),
    [
        ("2 s", 2, 0),
        ({"distribution": "fixed", "value": "2 s"}, 2, 0),
        ({"distribution": "exponential", "mean": "2 s"}, 2, 1),
        ({"distribution": "uniform", "low": 1, "high": 3}, 2, 1 / 12**0.5),
        ({"distribution": "lognormal", "mean": "2 s", "sigma": 0.5}, 2, (np.exp(0.25) - 1) ** 0.5),
    ],
)
def test_delays_have_their_mean_and_spread(delay, mean_s, cv):
    sessions = traffic(requests=40_000, sessions={"turns": 2, "think_time": delay}).sessions()
    delays_s = np.array([session.turns[1].waits[0].delay_s for session in sessions])
    assert delays_s.mean() == pytest.approx(mean_s, rel=0.03)
    assert delays_s.std() / delays_s.mean() == pytest.approx(cv, abs=0.03)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"arrivals": {"process": "closed", "concurrency": 2, "of": "requests"}}, "arrivals.of: has no effect"),
        ({"sessions": {"turns": 2, "fan_out": {"after": 2, "branches": 2}}}, "fan_out.after: no session goes on"),
        ({"sessions": {"turns": {"distribution": "uniform", "low": 3, "high": 2}}}, "sessions.turns.low"),
        (
            {"sessions": {"turns": 2, "think_time": {"distribution": "lognormal", "mean": 2}}},
            "sessions.think_time: lognormal needs either p99 or sigma",
        ),
        (
            {"sessions": {"turns": 2, "think_time": {"distribution": "uniform", "low": 2, "high": 1}}},
            "sessions.think_time.low: low=2 s is above high=1 s",
        ),
        (
            {"arrivals": {"process": "trace", "path": "x.csv"}, "sessions": {"turns": 2}},
            "sessions: a trace has its own requests",
        ),
        ({"shared_prefix": {"tokens": 1, "groups": 10**5, "prompts_per_group": 10**5}}, "are too many"),
        (
            {"cancellation": {"probability": 0.5, "after": {"distribution": "lognormal", "mean": 1}}},
            "cancellation.after",
        ),
    ],
)
def test_what_cannot_be_is_refused(keys, problem):
    with pytest.raises(ScenarioError) as error:
        traffic(requests=9, **keys)
    assert problem in str(error.value)
