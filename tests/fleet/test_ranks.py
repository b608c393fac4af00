"""Data-parallel ranks worked out by hand, their limits, and which rank a request goes to."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.cost import LinearCost
from sim.engine import EngineSettings, build_engine, rules_for
from sim.engine.request import Request
from sim.errors import ScenarioError
from sim.fleet.rank_choice import CHOICES, FewestTokens, InTurn, LeastPublished
from sim.fleet.ranks import RankedReplica, RankGroup
from sim.fleet.replica import Replica
from sim.fleet.simulation import simulate
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog, frame
from sim.results.result import Result
from sim.results.steps import StepLog
from sim.scenario import load_scenario

COST = LinearCost(prefill_s_per_token=0.1, step_s=1.0, step_s_per_sequence=1.0)
Sent = list[tuple[float, int, int]]
"""When, prompt tokens, output tokens."""


def live(sent: Sent, ranks: int, choice: str = "sglang", **changed: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Request and step table of one replica; 0 ranks: a plain one."""
    given = {"max_batched_tokens": 100, "max_sequences": 8, "max_model_len": 200, **changed}
    engines = [
        build_engine(rules_for("vllm", "0.33"), EngineSettings(**given), plain=True) for _ in range(max(ranks, 1))
    ]
    log, steps = RequestLog(), StepLog()
    recorder = ReplicaRecorder(log, steps, 0)
    replica: Replica
    if ranks:
        replica = RankedReplica(RankGroup(engines, CHOICES[choice](engines)), COST, recorder, log, lambda _: None)
    else:
        replica = Replica(engines[0], COST, recorder, log, lambda _: None)
    for at_s, prompt, output in sent:
        row = log.submit(at_s, prompt, 0)
        replica.receive(Request(row, prompt, output, order=row), at_s)
    assert replica.outstanding == len(sent)
    replica.advance(1e6)
    replica.close()
    assert replica.outstanding == 0
    return frame(log), steps.table.to_pandas()


def test_the_slowest_rank_sets_the_step() -> None:
    """Prompts of 10 and 30 tokens, one per rank: 1 and 3 s, so both have a token at 3. One sequence each decodes in
    1 + 1 = 2 s: two more tokens of the first until 7, one of the second until 5. The last step has an idle rank.
    """
    requests, steps = live([(0.0, 10, 3), (0.0, 30, 2)], 2)
    assert list(requests.first_token_s) == [3, 3]
    assert list(requests.finish_s) == [7, 5]
    assert list(steps.duration_s) == [3, 2, 2]
    assert list(steps.prefill_tokens) == [40, 0, 0]
    assert list(steps.decode_sequences) == [0, 2, 1]
    assert list(steps.context_tokens) == [40, 11 + 31, 12]
    assert list(steps.running) == [2, 1, 0]


def test_limits_are_each_ranks_own() -> None:
    """One sequence per rank: of four requests two run at once, 1 + 2 s, and the others after them."""
    requests, steps = live([(0.0, 10, 2)] * 4, 2, max_sequences=1, max_batched_tokens=100)
    assert list(requests.finish_s) == [3, 3, 6, 6]
    assert list(steps.running) == [2, 0, 2, 0]


def test_an_arrival_waits_for_the_step_of_all_ranks() -> None:
    """The idle rank runs a dummy step until 3, so a prompt of 10 that arrives at 0.5 begins then. Beside it the first
    request decodes: the longer of 1 and 2 s.
    """
    requests, _ = live([(0.0, 30, 2), (0.5, 10, 1)], 2)
    assert list(requests.scheduled_s) == [0, 3]
    assert list(requests.finish_s) == [5, 5]


@settings(max_examples=25, deadline=None)
@given(
    sent=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12),
    changed=st.fixed_dictionaries(
        {
            "max_sequences": st.sampled_from([1, 3, 8]),
            "kv_blocks": st.sampled_from([7, 20, None]),
            "max_batched_tokens": st.sampled_from([8, 100]),
            "async_scheduling": st.booleans(),
        }
    ),
    choice=st.sampled_from(sorted(CHOICES)),
)
def test_one_rank_is_the_plain_replica(sent: Sent, changed: dict[str, Any], choice: str) -> None:
    """To the last bit."""
    sent = sorted(sent)
    for one, other in zip(live(sent, 0, **changed), live(sent, 1, choice, **changed), strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)


@settings(max_examples=25, deadline=None)
@given(sent=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12))
def test_ranks_of_equal_load_serve_as_much_as_each_alone(sent: Sent) -> None:
    """Every request three times, in turn to three ranks: each is served when it would be by one rank alone."""
    sent = sorted(sent)
    alone, alone_steps = live(sent, 0)
    three, steps = live([one for one in sent for _ in range(3)], 3)
    for copy in range(3):
        assert list(three.finish_s[copy::3]) == list(alone.finish_s)
        assert list(three.first_token_s[copy::3]) == list(alone.first_token_s)
    assert list(steps.duration_s) == list(alone_steps.duration_s)
    assert list(steps.output_tokens) == [3 * tokens for tokens in alone_steps.output_tokens]


class Counts:
    """An engine that only says how many wait and run."""

    def __init__(self, waiting: int = 0, running: int = 0) -> None:
        self.waiting_count, self.running_count = waiting, running


def request(prompt_tokens: int = 10) -> Request:
    return Request(0, prompt_tokens, 1, order=0)


def test_vllm_looks_at_counts_that_are_up_to_100_ms_old() -> None:
    """Nothing is known at first: 0, 1, 0. The first reports, at 0.01 s, are published at once: rank 0 has 1 waiting and
    2 running, rank 1 has 5 running: 6 against 5. Rank 1 takes one and counts 9, rank 0 the next and counts 10, rank 1
    again. A report at 0.05 s is not seen at 0.109 s, only from 0.11 s on.
    """
    ranks: Any = [Counts(), Counts()]
    choice = LeastPublished(ranks)
    assert [choice.pick(request(), 0.0) for _ in range(3)] == [0, 1, 0]
    ranks[0].waiting_count, ranks[0].running_count, ranks[1].running_count = 1, 2, 5
    choice.stepped(0.01)
    assert [choice.pick(request(), 0.02) for _ in range(3)] == [1, 0, 1]
    ranks[0].waiting_count = ranks[0].running_count = 0
    choice.stepped(0.05)
    assert choice.pick(request(), 0.109) == 0  # 10 against 13, as before
    ranks[1].running_count = 0
    choice.stepped(0.112)  # the report of 0.05 s went out at 0.11 s: 0 against 5
    assert [choice.pick(request(), 0.12) for _ in range(3)] == [0, 0, 1]


def test_sglang_takes_turns_and_trtllm_weighs_prompts() -> None:
    ranks: Any = [Counts(), Counts()]
    assert [InTurn(ranks).pick(request(), 0.0)] == [0]
    turns = InTurn(ranks)
    assert [turns.pick(request(), 0.0) for _ in range(3)] == [0, 1, 0]
    fewest = FewestTokens(ranks)
    assert [fewest.pick(request(tokens), 0.0) for tokens in (100, 30, 30, 30, 50)] == [0, 1, 1, 1, 1]


MOE: dict[str, Any] = {
    "model": "qwen3-30b-a3b",
    "hardware": "h100-sxm",
    "deployment": {"data_parallel": 2, "expert_parallel": 2},
    "traffic": {
        "arrivals": {"process": "poisson", "rate": 40},
        "requests": 60,
        "prompt_tokens": {"distribution": "uniform", "low": 1, "high": 400},
        "output_tokens": {"distribution": "uniform", "low": 1, "high": 60},
    },
}


@pytest.mark.parametrize(("engine", "pipeline"), [("vllm", 1), ("sglang", 1), ("trtllm", 1), ("vllm", 2)])
def test_every_request_and_second_is_accounted_for(engine: str, pipeline: int) -> None:
    changes = {"engine.name": engine, "deployment.pipeline_parallel": pipeline}
    result = sim.run(MOE, overrides=changes)
    requests, steps, summary = result.requests, result.steps, result.summary
    assert (requests.status == "completed").all()
    assert requests.output_tokens.sum() == steps.output_tokens.sum()
    assert steps.prefill_tokens.sum() == (requests.prompt_tokens - requests.cached_tokens).sum()
    assert steps.kv_blocks_used.iloc[-1] == 0
    assert sum(summary["bound"].values()) == pytest.approx(1)
    parts = requests.decode_s + requests.decode_interference_s + requests.decode_stall_s
    assert parts.to_numpy() == pytest.approx((requests.e2e_s - requests.ttft_s).to_numpy(), abs=1e-9)
    said = {entry["what"]: entry for entry in summary["assumed"]}
    assert said["data-parallel ranks"]["value"].startswith("2 per replica")


def test_the_kv_cache_of_a_replica_is_that_of_all_ranks() -> None:
    changes = {"engine.kv_blocks": 501, "traffic.requests": 4}
    one = sim.run(MOE, overrides={**changes, "deployment": {}}).summary["kv"]
    two = sim.run(MOE, overrides=changes).summary["kv"]
    assert two["capacity_blocks"] == 2 * one["capacity_blocks"]


@settings(max_examples=15, deadline=None)
@given(
    sequences=st.sampled_from([1, 4, 64]),
    blocks=st.sampled_from([40, 80, 4000]),
    overlapped=st.booleans(),
    caching=st.booleans(),
    closed=st.booleans(),
)
def test_short_cuts_within_ranks_decide_nothing(
    sequences: int, blocks: int, overlapped: bool, caching: bool, closed: bool
) -> None:
    """Each rank's engine keeps its decodes as sums; with and without that every table is equal to the last bit."""
    engine = {
        "max_sequences": sequences,
        "kv_blocks": blocks,
        "max_batched_tokens": 256,
        "max_model_len": 500,
        "async_scheduling": overlapped,
        "prefix_caching": caching,
    }
    arrivals = {"process": "closed", "concurrency": 9} if closed else {"process": "poisson", "rate": 90}
    loaded = load_scenario(MOE, overrides={"engine": engine, "traffic.arrivals": arrivals})
    plain, fast = (Result(simulate(loaded, plain=plain)) for plain in (True, False))
    pd.testing.assert_frame_equal(plain.requests, fast.requests, check_exact=True)
    pd.testing.assert_frame_equal(plain.steps, fast.steps, check_exact=True)


def test_sglang_shares_its_limits_out_among_ranks() -> None:
    """Of 8,192 tokens and 64 requests each of 2 ranks has half, and 0.3 of the conservativeness."""
    changes = {"engine": {"name": "sglang", "max_sequences": 64}, "traffic.requests": 2}
    settings = sim.run(MOE, overrides=changes).summary["engine"]["settings"]
    assert (settings["max_batched_tokens"], settings["max_sequences"]) == (4096, 32)
    assert settings["schedule_conservativeness"] == pytest.approx(0.3)
    with pytest.raises(ScenarioError, match="less than one each"):
        sim.run(MOE, overrides={"engine": {"name": "sglang", "max_sequences": 1}})


def test_it_needs_an_engine_with_a_rule_for_ranks() -> None:
    with pytest.raises(ScenarioError, match="attention data parallelism of"):
        sim.run(MOE, overrides={"engine.name": "orca"})


@pytest.mark.parametrize("deployment", [{"pipeline_parallel": 3}, {"data_parallel": 2}])
def test_given_up_requests_keep_what_reached_their_clients(deployment: dict[str, int]) -> None:
    """Clients with 0.3 s of patience: every token of the step table is some request's, and no KV block is lost."""
    changes = {"deployment": deployment, "traffic.client": {"timeout": 0.3}}
    result = sim.run(MOE, overrides=changes)
    status = result.requests.status.value_counts()
    assert status["completed"] > 0
    assert status["failed"] > 0
    assert result.requests.output_tokens.sum() == result.steps.output_tokens.sum()
    assert result.steps.kv_blocks_used.iloc[-1] == 0
