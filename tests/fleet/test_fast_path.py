"""The short cuts decide nothing: with and without them every table is equal to the last bit."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.protocol import Foresight
from sim.fleet.assembly import assemble
from sim.fleet.simulation import simulate
from sim.results.result import Result
from sim.scenario import load_scenario

LINEAR = {
    "model": "linear",
    "prefill_step_s": 1e-3,
    "prefill_s_per_token": 21e-6,
    "step_s": 4.3e-3,
    "step_s_per_sequence": 37e-6,
    "step_s_per_context_token": 13e-9,
}
MODELS = ("llama-3.1-8b", "llama-3.1-8b", "gpt-oss-20b", "mimo-v2-flash")
lengths = st.one_of(
    st.integers(1, 40).map(lambda value: {"distribution": "fixed", "value": value}),
    st.tuples(st.integers(1, 30), st.integers(0, 90)).map(
        lambda pair: {"distribution": "uniform", "low": pair[0], "high": pair[0] + pair[1]}
    ),
    st.sampled_from([{"distribution": "lognormal", "mean": 60, "sigma": 1.1, "high": 300}]),
)


@st.composite
def engines(draw: st.DrawFn) -> dict[str, Any]:
    """Versions, budgets and pools, small enough that everything happens: chunks, starvation, preemption, eviction."""
    block_tokens = draw(st.sampled_from([4, 16]))
    sequences = draw(st.sampled_from([1, 2, 5, 16, 64]))
    chosen: dict[str, Any] = {
        "version": draw(st.sampled_from(["0.9", "0.14", "0.25", "0.32", "0.33"])),
        "block_tokens": block_tokens,
        "max_model_len": 400,
        "max_sequences": sequences,
        "max_batched_tokens": max(sequences, draw(st.sampled_from([8, 40, 64, 512]))),
        "kv_blocks": 2 + 400 // block_tokens + draw(st.sampled_from([0, 5, 60, 4000])),
        "prefix_caching": draw(st.booleans()),
    }
    if draw(st.booleans()):
        chosen["async_scheduling"] = draw(st.booleans())
    if draw(st.booleans()):
        chosen["policy"] = "priority"
    if draw(st.booleans()):
        chosen["long_prefill_threshold"] = draw(st.sampled_from([5, 30]))
    if draw(st.booleans()):
        chosen["reserve_full_prompt"] = draw(st.booleans())
    if draw(st.booleans()):
        chosen["watermark"] = 0.05
    return chosen


@st.composite
def trtllm_engines(draw: st.DrawFn) -> dict[str, Any]:
    """As ``engines``: slots, budgets and pools that run out, reuse, chunks, and contexts that wait to be batched."""
    block_tokens = draw(st.sampled_from([4, 16]))
    chosen: dict[str, Any] = {
        "name": "trtllm",
        "block_tokens": block_tokens,
        "max_model_len": 400,
        "max_sequences": draw(st.sampled_from([1, 2, 5, 16, 64])),
        "max_batched_tokens": draw(st.sampled_from([16, 40, 64, 512])),
        "kv_blocks": 2 + 400 // block_tokens + draw(st.sampled_from([0, 5, 60, 4000])),
        "prefix_caching": draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
        "chunked_prefill": draw(st.sampled_from([True, True, False])),
        "capacity_policy": draw(st.sampled_from(["guaranteed-no-evict"] * 4 + ["max-utilization", "prefill-first"])),
    }
    if chosen["chunked_prefill"]:
        chosen["chunking_policy"] = draw(st.sampled_from(["fcfs", "equal-progress"]))
    else:
        chosen["max_batched_tokens"] = 512
    if draw(st.sampled_from([False, False, True])):
        chosen["batch_wait_timeout_iters"] = draw(st.sampled_from([1, 7]))
        chosen["batch_wait_max_tokens_ratio"] = draw(st.sampled_from([0.1, 0.9]))
    return chosen


@st.composite
def sglang_engines(draw: st.DrawFn) -> dict[str, Any]:
    """As ``engines``: pools that run out, so that requests are retracted, and every policy and budget."""
    page = draw(st.sampled_from([1, 1, 4]))
    chosen: dict[str, Any] = {
        "name": "sglang",
        "block_tokens": page,
        "max_model_len": 400,
        "max_sequences": draw(st.sampled_from([1, 2, 5, 16, 64])),
        "kv_blocks": (420 + draw(st.sampled_from([0, 20, 240, 16000]))) // page,
        "prefix_caching": draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
        "chunked_prefill": draw(st.sampled_from([True, True, False])),
        "policy": draw(st.sampled_from(["fcfs", "fcfs", "lpm", "lof", "random", "priority"])),
        "ignore_eos": draw(st.booleans()),
        "scheduler_recv_interval": draw(st.sampled_from([1, 1, 2, 9])),
        "schedule_conservativeness": draw(st.sampled_from([0.1, 0.5, 1.0])),
    }
    if chosen["chunked_prefill"]:
        chosen["max_batched_tokens"] = draw(st.sampled_from([16, 64, 512]))
        chosen["mixed_chunk"] = draw(st.booleans())
    if chosen["policy"] == "lpm":
        chosen["prefix_caching"] = True
    if chosen["policy"] == "priority":
        chosen["priority_preemption"] = draw(st.booleans())
    return chosen


delays = st.sampled_from([
    0, "20 ms", {"distribution": "exponential", "mean": 0.3}, {"distribution": "uniform", "low": 0, "high": 2},
])  # fmt: skip


@st.composite
def sessions(draw: st.DrawFn) -> dict[str, Any]:
    """Chats and agents of a few short turns."""
    chosen: dict[str, Any] = {
        "turns": draw(st.sampled_from([1, 4, {"distribution": "uniform", "low": 1, "high": 6}])),
        "think_time": draw(delays),
    }
    if draw(st.booleans()):
        chosen["first_prompt_tokens"] = draw(lengths)
    if draw(st.booleans()):
        chosen["tool_calls"] = {"probability": 0.6, "delay": draw(delays), "tokens": draw(lengths)}
    if chosen["turns"] != 1 and draw(st.booleans()):
        branches = {"distribution": "uniform", "low": 1, "high": 3}
        chosen["fan_out"] = {"after": draw(st.integers(1, 3)), "branches": branches, "join": draw(st.booleans())}
    return chosen


@st.composite
def scenarios(
    draw: st.DrawFn, kind: st.SearchStrategy[dict[str, Any]], models: tuple[str, ...] = MODELS
) -> dict[str, Any]:
    engine, model = draw(kind), draw(st.sampled_from(models))
    if model in {"gpt-oss-20b", "mimo-v2-flash"}:  # two block tables, or kinds of layers
        engine["kv_blocks"] *= 2
    rate = draw(st.sampled_from([0.5, 8.0, 60.0, 400.0]))
    arrivals = draw(
        st.sampled_from(
            [
                {"process": "poisson", "rate": rate},
                {"process": "gamma", "rate": rate, "cv": 3},
                {"process": "constant", "rate": rate},
                {"process": "burst"},
                {"process": "closed", "concurrency": 7},
                {"process": "poisson", "rate": rate, "max_concurrency": 4},
            ]
        )
    )
    traffic: dict[str, Any] = {
        "arrivals": arrivals,
        "requests": draw(st.integers(1, 40)),
        "prompt_tokens": draw(lengths),
        "output_tokens": draw(lengths),
    }
    if engine.get("policy") == "priority":
        traffic["priorities"] = {0: 1, 1: 2, 5: 1}
    if draw(st.booleans()):  # requests that stop before their cap
        traffic["max_output_tokens"] = draw(st.sampled_from([20, 60, 99]))
    if draw(st.booleans()):
        traffic["shared_prefix"] = {"tokens": draw(st.sampled_from([3, 32, 70])), "groups": draw(st.integers(1, 3))}
    if draw(st.booleans()):
        traffic["sessions"] = draw(sessions())
        if arrivals["process"] == "closed":
            traffic["arrivals"] = arrivals | {"of": draw(st.sampled_from(["sessions", "requests"]))}
        if draw(st.booleans()):
            traffic["duration"] = 3
    if draw(st.booleans()):  # clients that give up
        traffic["client"] = {"timeout": draw(st.sampled_from(["50 ms", "1 s", "7 s"]))}
    if draw(st.sampled_from([False, False, True])):
        traffic["cancellation"] = {"probability": 0.4, "after": draw(delays)}
    replicas = draw(st.sampled_from([1, 1, 3]))
    routers = ["round-robin", "least-outstanding", "power-of-two", "session", "prefix"]
    return {
        "model": model,
        "hardware": "h100-sxm",
        "engine": engine,
        "deployment": {
            "replicas": replicas,
            "router": draw(st.sampled_from(routers)),
        },
        "cost": draw(st.sampled_from([LINEAR, {"model": "roofline"}, {"efficiency": "ideal"}])),
        "traffic": traffic,
        "measure": {"drain": draw(st.sampled_from([True, True, False]))},
        "seed": draw(st.integers(0, 9)),
    }


def tables(scenario: dict[str, Any], *, plain: bool) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    result = Result(simulate(load_scenario(scenario), plain=plain))
    steps = result.steps.sort_values(["replica", "start_s"], kind="stable").reset_index(drop=True)
    return result.requests, steps, result.summary


@settings(deadline=None, max_examples=500)
@given(scenarios(engines()))
def test_fast_path_equals_plain_path(scenario: dict[str, Any]) -> None:
    check(scenario)


@settings(deadline=None, max_examples=300)
@given(scenarios(trtllm_engines()))
def test_fast_path_of_trtllm_equals_its_plain_path(scenario: dict[str, Any]) -> None:
    check(scenario)


@settings(deadline=None, max_examples=300)
@given(scenarios(sglang_engines()))
def test_fast_path_of_sglang_equals_its_plain_path(scenario: dict[str, Any]) -> None:
    check(scenario)


@settings(deadline=None, max_examples=200)
@given(scenarios(engines().map(lambda engine: engine | {"prefix_caching": False}), ("gpt-oss-20b",)))
def test_fast_path_with_windows_equals_its_plain_path(scenario: dict[str, Any]) -> None:
    """Two block tables, one of them of a window of 128 tokens."""
    check(scenario)


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
def test_ranks_with_short_cuts_equal_plain_ones(engine: str, drain: bool) -> None:
    """What has not ended when the load does keeps the tokens it has."""
    check(
        {
            "model": "deepseek-v3",
            "hardware": "h200-sxm",
            "engine": {"name": engine, "max_model_len": 4000},
            "deployment": {"data_parallel": 8, "expert_parallel": 8},
            "traffic": {
                "arrivals": {"process": "poisson", "rate": 30},
                "duration": 3,
                "prompt_tokens": {"distribution": "uniform", "low": 10, "high": 300},
                "output_tokens": {"distribution": "uniform", "low": 10, "high": 300},
            },
            "measure": {"drain": drain},
        }
    )


def check(scenario: dict[str, Any]) -> None:
    """Both paths, table for table."""
    (requests, steps, summary), (plain_requests, plain_steps, plain_summary) = (
        tables(scenario, plain=plain) for plain in (False, True)
    )
    pd.testing.assert_frame_equal(requests, plain_requests, check_exact=True)
    pd.testing.assert_frame_equal(steps, plain_steps, check_exact=True)
    assert summary == plain_summary
    assert steps["output_tokens"].sum() == requests["output_tokens"].sum()


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("llama-3.1-8b", {}),
        ("llama-3.1-8b", {"name": "trtllm"}),
        ("llama-3.1-8b", {"name": "sglang"}),
        ("gpt-oss-20b", {"prefix_caching": False}),
    ],
)
def test_the_fast_path_is_taken(model: str, engine: dict[str, Any]) -> None:
    traffic = {"arrivals": {"process": "burst"}, "requests": 1, "prompt_tokens": 9, "output_tokens": 9}
    setup = assemble(load_scenario({"model": model, "hardware": "h200-sxm", "engine": engine, "traffic": traffic}))
    assert isinstance(setup.engine(), Foresight)
    assert not isinstance(setup.engine(plain=True), Foresight)
