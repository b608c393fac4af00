"""Pipelines worked out by hand, and what must hold of every one.

By hand: two stages of 1 s and 2 s, whatever a batch computes; a step takes 10 tokens, so one prompt of 10.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.cost import LinearCost
from sim.engine import EngineSettings, build_engine, rules_for
from sim.engine.request import Request
from sim.errors import ScenarioError
from sim.fleet.fast_replica import build_replica
from sim.fleet.pipeline import PipelineReplica
from sim.fleet.replica import Replica
from sim.results.pipelines import PipelineRecorder
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog, frame
from sim.results.steps import StepLog
from sim.work import StepTime, StepWork


class StageCost(LinearCost):
    """Fixed seconds per stage."""

    stages_s: tuple[float, ...] = (1.0, 2.0)
    host_s = 0.0

    def stage_times(self, work: StepWork) -> tuple[StepTime, ...]:
        hosts_s = (self.host_s, *[0.0] * (len(self.stages_s) - 1))
        return tuple(StepTime(host_s, 0.0, s, 0.0, 0.0) for host_s, s in zip(hosts_s, self.stages_s, strict=True))


class World:
    """One replica, driven by hand."""

    def __init__(self, cost: LinearCost, stages: int = 2, **changed: Any) -> None:
        given = {"max_batched_tokens": 10, "max_sequences": 8, "max_model_len": 64, **changed}
        engine = build_engine(rules_for("vllm", "0.33"), EngineSettings(**given), plain=True)
        self.log, self.steps = RequestLog(), StepLog()
        recorder = PipelineRecorder(self.log, self.steps, 0)
        self.replica: Replica = PipelineReplica(engine, cost, recorder, self.log, lambda _: None, stages=stages)

    def send(self, at_s: float, prompt_tokens: int, output_tokens: int) -> None:
        row = self.log.submit(at_s, prompt_tokens, 0)
        self.replica.receive(Request(row, prompt_tokens, output_tokens, order=row), at_s)

    def run(self) -> Any:
        self.replica.advance(1e6)
        self.replica.close()
        return frame(self.log)


def test_batches_follow_one_another_through_the_stages() -> None:
    """A and B are planned at 0. A: stage 1 until 1, stage 2 until 3. B: until 2, then 3 to 5. C is planned at 3: until
    4, then 5 to 7.
    """
    world = World(StageCost())
    for _ in range(3):
        world.send(0.0, 10, 1)
    done = world.run()
    assert list(done.finish_s) == [3, 5, 7]
    assert list(done.scheduled_s) == [0, 0, 3]
    steps = world.steps.table.to_pandas()
    assert list(steps.start_s) == [0, 3, 5]
    assert list(steps.duration_s) == [3, 2, 2]
    assert list(steps.memory_s) == [3, 2, 2]


def test_a_request_alone_takes_all_stages_per_token() -> None:
    """1 + 2 s for each of three tokens: the pipeline is empty but for its one batch."""
    world = World(StageCost())
    world.send(0.0, 10, 3)
    done = world.run()
    assert (done.first_token_s[0], done.finish_s[0]) == (3, 9)
    assert (done.decode_s[0], done.itl_max_s[0]) == (6, 3)


def test_two_batches_fill_two_stages() -> None:
    """One token every 2 s, the slowest stage, from 3 s on: A at 3, 7, 11, B at 5, 9, 13."""
    world = World(StageCost())
    for _ in range(2):
        world.send(0.0, 10, 3)
    done = world.run()
    assert list(done.first_token_s) == [3, 5]
    assert list(done.finish_s) == [11, 13]


def test_three_batches_fill_three_stages() -> None:
    """Stages of 1 s: A, B and C at 3, 4, 5, and again every 3 s. Parts of a step are scaled to the 1 s it lasts."""
    cost = StageCost()
    object.__setattr__(cost, "stages_s", (1.0, 1.0, 1.0))
    world = World(cost, stages=3)
    for _ in range(3):
        world.send(0.0, 10, 4)
    done = world.run()
    assert list(done.finish_s) == [12, 13, 14]
    assert list(world.steps.table.to_pandas().memory_s) == pytest.approx([3.0, *[1.0] * 11])


def test_chunks_of_a_prompt_follow_in_the_next_batch() -> None:
    """A prompt of 20 is two batches planned at 0, the second of which ends at 5 and samples; its decode takes 3 s."""
    world = World(StageCost())
    world.send(0.0, 20, 2)
    done = world.run()
    assert (done.first_token_s[0], done.finish_s[0]) == (5, 8)


def test_an_arrival_waits_for_the_batch_that_is_waited_for() -> None:
    """With one batch in flight and nothing to plan, the engine blocks until 3; then both share a batch."""
    world = World(StageCost())
    world.send(0.0, 9, 2)
    world.send(0.5, 9, 1)
    done = world.run()
    assert list(done.scheduled_s) == [0, 3]
    assert list(done.finish_s) == [6, 6]


def test_the_host_plans_one_batch_after_the_other() -> None:
    """0.5 s of host each: A is ready at 0.5 and ends at 3.5, B at 1 and ends at 5.5."""
    cost = StageCost()
    object.__setattr__(cost, "host_s", 0.5)
    world = World(cost)
    for _ in range(2):
        world.send(0.0, 10, 1)
    assert list(world.run().finish_s) == [3.5, 5.5]
    steps = world.steps.table.to_pandas()
    assert list(steps.host_s) == [0.5, 0.0]


def test_a_token_in_flight_of_a_preempted_request_is_sampled_again() -> None:
    """Three stages, blocks of 4 tokens, 6 of them: every request still gets its tokens, each once."""
    world = World(StageCost(), block_tokens=4, kv_blocks=7, max_batched_tokens=8, prefix_caching=False)
    for _ in range(4):
        world.send(0.0, 8, 10)
    done = world.run()
    assert list(done.output_tokens) == [10] * 4
    assert done.preemptions.sum() > 0
    assert world.steps.table.to_pandas().output_tokens.sum() == 40
    assert world.replica.engine.kv_blocks_used == 0


LINEAR = {"model": "linear", "prefill_s_per_token": 2e-5, "step_s": 4e-3, "step_s_per_sequence": 4e-5}


def scenario(**changes: Any) -> dict[str, Any]:
    return {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "cost": LINEAR,
        "traffic": {"arrivals": {"process": "burst"}, "requests": 64, "prompt_tokens": 64, "output_tokens": 32},
        **changes,
    }


def test_it_needs_an_engine_that_plans_around_tokens_in_flight() -> None:
    for changed, path in (
        ({"engine": {"name": "sglang"}}, "deployment.pipeline_parallel"),
        ({"engine": {"async_scheduling": True}}, "engine.async_scheduling"),
    ):
        with pytest.raises(ScenarioError) as caught:
            sim.run(scenario(deployment={"pipeline_parallel": 2}, **changed))
        assert path in [problem.path for problem in caught.value.problems]


def test_what_is_taken_for_granted_is_said() -> None:
    summary = sim.run(scenario(deployment={"pipeline_parallel": 2})).summary
    said = {entry["what"]: entry["value"] for entry in summary["assumed"]}
    assert said["pipeline"].startswith("2 batches in flight")
    assert summary["engine"]["settings"]["async_scheduling"] is False


SMALL = st.fixed_dictionaries(
    {
        "max_batched_tokens": st.sampled_from([8, 16, 40]),
        "max_sequences": st.sampled_from([1, 3, 8]),
        "block_tokens": st.sampled_from([4, 16]),
        "kv_blocks": st.sampled_from([30, 60, 4000]),
        "prefix_caching": st.booleans(),
        "policy": st.sampled_from(["fcfs", "priority"]),
        "reserve_full_prompt": st.booleans(),
    }
)
TRAFFIC = st.fixed_dictionaries(
    {
        "arrivals": st.sampled_from(
            [
                {"process": "burst"},
                {"process": "poisson", "rate": 60},
                {"process": "closed", "concurrency": 4},
            ]
        ),
        "requests": st.just(20),
        "prompt_tokens": st.sampled_from([1, 30, {"distribution": "uniform", "low": 1, "high": 90}]),
        "output_tokens": st.sampled_from([1, 20, {"distribution": "uniform", "low": 1, "high": 40}]),
        "shared_prefix": st.just({"tokens": 8, "groups": 2}),
    }
)


@settings(max_examples=25, deadline=None)
@given(engine=SMALL, traffic=TRAFFIC, stages=st.sampled_from([2, 3, 5]), seed=st.integers(0, 9))
def test_every_request_and_second_is_accounted_for(
    engine: dict[str, Any], traffic: dict[str, Any], stages: int, seed: int
) -> None:
    engine = {**engine, "max_model_len": 110}
    result = sim.run(scenario(engine=engine, traffic=traffic, deployment={"pipeline_parallel": stages}, seed=seed))
    requests, steps, summary = result.requests, result.steps, result.summary
    done = requests[requests.status == "completed"]
    assert summary["requests"]["unfinished"] == 0
    assert sum(summary["bound"].values()) == pytest.approx(1)
    assert requests.output_tokens.sum() == steps.output_tokens.sum()
    assert (steps.kv_blocks_used.iloc[-1] if len(steps) else 0) == 0
    assert steps.kv_blocks_used.max() <= summary["kv"]["capacity_blocks"]
    ends_s = steps.start_s + steps.duration_s
    assert (steps.start_s.to_numpy()[1:] >= ends_s.to_numpy()[:-1] - 1e-12).all()
    parts = done.dispatch_s + done.queue_s + done.prefill_s + done.prefill_stall_s
    assert parts.to_numpy() == pytest.approx(done.ttft_s.to_numpy(), abs=1e-9)
    parts = done.decode_s + done.decode_interference_s + done.decode_stall_s
    assert parts.to_numpy() == pytest.approx((done.e2e_s - done.ttft_s).to_numpy(), abs=1e-9)
    assert (done.output_tokens <= 110 - done.prompt_tokens).all()


@settings(max_examples=15, deadline=None)
@given(engine=SMALL, seed=st.integers(0, 99))
def test_one_stage_is_the_plain_replica(engine: dict[str, Any], seed: int) -> None:
    """To the last bit; what differs is how gaps are written down."""
    chance = random.Random(seed)
    given = {**engine, "max_batched_tokens": max(engine["max_batched_tokens"], engine["max_sequences"])}
    cost = LinearCost(prefill_s_per_token=21e-6, step_s=4.3e-3, step_s_per_sequence=37e-6)
    sent, at_s = [], 0.0
    for _ in range(12):
        at_s += chance.expovariate(60)
        sent.append((at_s, chance.randint(1, 60), chance.randint(1, 40)))
    tables = []
    for pipelined in (False, True):
        built = build_engine(rules_for("vllm", "0.33"), EngineSettings(**given, max_model_len=110), plain=True)
        log, steps = RequestLog(), StepLog()
        replica = (
            PipelineReplica(built, cost, PipelineRecorder(log, steps, 0), log, lambda _: None, stages=1)
            if pipelined
            else build_replica(built, cost, ReplicaRecorder(log, steps, 0), log, lambda _: None)
        )
        for arrival_s, prompt, output in sent:
            row = log.submit(arrival_s, prompt, 0)
            replica.receive(Request(row, prompt, output, order=row), arrival_s)
        replica.advance(1e6)
        replica.close()
        tables.append((frame(log), steps.table.to_pandas()))
    (requests, steps), (staged, staged_steps) = tables
    times = ["received_s", "scheduled_s", "first_token_s", "finish_s", "output_tokens", "preemptions"]
    assert requests[times].equals(staged[times])
    assert steps.drop(columns=["gap_s", "streaming"]).equals(staged_steps.drop(columns=["gap_s", "streaming"]))


def test_llama_cpps_layers_over_gpus_take_their_turns() -> None:
    """One client: a token takes as long over two GPUs as over one, and a send; two clients gain nothing."""
    base = {
        "model": "llama-3-8b",
        "hardware": "a40",
        "engine": {"name": "llama.cpp"},
        "traffic": {
            "arrivals": {"process": "closed", "concurrency": 1},
            "requests": 2,
            "prompt_tokens": 16,
            "output_tokens": 30,
        },
    }
    one, two = (
        sim.run(base, overrides={"deployment.pipeline_parallel": stages}).summary["tpot_s"]["mean"] for stages in (1, 2)
    )
    assert one < two < 1.02 * one
    both = sim.run(base, overrides={"deployment.pipeline_parallel": 2, "traffic.arrivals.concurrency": 2}).summary
    assert both["tpot_s"]["mean"] > two
