"""Random small scenarios of every engine: every request and token is accounted for, and every refusal has a cure.

Where there is hardly any memory, a batch of one, prompts above ``max_model_len``, answers of one token, priorities,
shared prefixes, windows, latent attention, several replicas.
"""

import json
import random
import re
from itertools import islice

import numpy as np
import pytest

import sim
from sim.errors import RidgelineError
from sim.fleet.assembly import assemble
from sim.fleet.simulation import Simulation
from sim.results.result import Result
from sim.scenario import load_scenario

SCENARIOS = 40
"""Of each engine."""
COMMON = {
    "max_model_len": [64, 100, 300, 1000],
    "kv_blocks": [5, 20, 100, 400, 1000, 4000],
    "max_sequences": [1, 2, 7, 16],
    "block_tokens": [1, 4, 16, 32],
}
BUDGET, CACHING, CHUNKS, OVERLAP = (
    {"max_batched_tokens": [16, 64, 100, 256, 1000]},
    {"prefix_caching": [True, False]},
    {"chunked_prefill": [True, False]},
    {"async_scheduling": [True, False]},
)
DRAFTS = [{"method": "ngram", "tokens": tokens, "acceptance": share} for tokens in (1, 3) for share in (0, 0.4, 1)]
VLLM = {**BUDGET, **CACHING, **CHUNKS, "policy": ["fcfs", "priority"], "watermark": [0, 0.3], "speculative": DRAFTS}
SETTINGS = {
    "vllm": {**VLLM, "reserve_full_prompt": [True, False], "version": ["0.9", "0.11", "0.19", "0.29", "0.33"]},
    "vllm_v0": {**BUDGET, **CACHING, **CHUNKS, "watermark": [0, 0.3, 0.9]},
    "sglang": {
        **BUDGET,
        **CACHING,
        **OVERLAP,
        "policy": ["lpm", "dfs-weight", "lof", "random", "hrrn", "priority"],
        "max_prefill_tokens": [1, 64, 500],
        "schedule_conservativeness": [0.1, 3.0],
        "mixed_chunk": [True],
        "ignore_eos": [True],
        "scheduler_recv_interval": [2, 10],
    },
    "trtllm": {
        **BUDGET,
        **CACHING,
        **CHUNKS,
        **OVERLAP,
        "capacity_policy": ["guaranteed-no-evict", "max-utilization", "static-batch"],
    },
    "orca": {},
    "static": {},
    "sarathi": {**BUDGET, **CACHING, "watermark": [0, 0.3, 0.9]},
    "llama.cpp": {**BUDGET, **CACHING},
}
ARRIVALS = [
    {"process": "poisson", "rate": 50},
    {"process": "gamma", "rate": 30, "cv": 3},
    {"process": "burst"},
    {"process": "closed", "concurrency": 3},
    {"process": "constant", "rate": 100, "max_concurrency": 4},
]
LENGTHS = [1, 2, 16, *({"distribution": "uniform", "low": 1, "high": high} for high in (5, 30, 100, 200))]
MODELS = ["llama-3.1-8b", "llama-3.1-8b", "gpt-oss-20b", "gemma-3-4b", "deepseek-v2-lite"]
COSTS = [{"model": "linear", "prefill_s_per_token": 1e-4, "step_s": 0.01}, {"efficiency": "ideal"}, {}]


def scenario(name, chance):
    """A random scenario; each key of the engine is written in one of three."""
    keys = {**COMMON, **SETTINGS[name]}
    engine = {key: chance.choice(values) for key, values in keys.items() if chance.random() < 1 / 3}
    engine["name"] = name.removesuffix("_v0")
    if name == "vllm_v0":
        engine["version"] = "0.6"
    traffic = {
        "arrivals": chance.choice(ARRIVALS),
        "requests": chance.choice([1, 6, 25]),
        "prompt_tokens": chance.choice(LENGTHS),
        "output_tokens": chance.choice(LENGTHS),
    }
    if chance.random() < 0.3:
        traffic["max_output_tokens"] = chance.choice([1, 10, 200])
    if chance.random() < 0.3:
        traffic["shared_prefix"] = {"tokens": chance.choice([1, 16, 90]), "groups": 2}
    if engine.get("policy") == "priority":
        traffic["priorities"] = {0: 1, 5: 2, -3: 1}
    return {
        "model": chance.choice(MODELS),
        "hardware": "h100-sxm",
        "engine": engine,
        "traffic": traffic,
        "cost": chance.choice(COSTS),
        "deployment": chance.choice([{}, {"tensor_parallel": 2}, {"replicas": 3, "router": "power-of-two"}]),
        "measure": {"drain": chance.random() < 0.8},
        "seed": chance.randrange(1000),
    }


def check(result, drafted, drain):
    summary, requests, steps = result.summary, result.requests, result.steps
    counts, settings = summary["requests"], summary["engine"]["settings"]
    assert counts["submitted"] == counts["completed"] + counts["rejected"] + counts["unfinished"] == len(requests)
    assert sum(summary["rejections"].values()) == counts["rejected"]
    assert sum(summary["bound"].values()) == pytest.approx(1)
    json.dumps(summary, allow_nan=False)
    numbers = requests.select_dtypes("number").drop(columns=["priority", "replica"])
    assert not (numbers < -1e-9).any().any()
    assert not (steps.select_dtypes("number") < -1e-9).any().any()
    assert steps.kv_blocks_used.max() <= summary["kv"]["capacity_blocks"] or not len(steps)
    assert steps.running.max() <= settings["max_sequences"] or not len(steps)
    assert requests.output_tokens.sum() == steps.output_tokens.sum()
    done = requests[requests.status == "completed"]
    check_requests(requests, result.run.setup)
    parts = done.dispatch_s + done.queue_s + done.prefill_s + done.prefill_stall_s
    assert np.allclose(parts, done.ttft_s, rtol=0, atol=1e-9)
    parts = done.decode_s + done.decode_interference_s + done.decode_stall_s
    assert np.allclose(parts, done.e2e_s - done.ttft_s, rtol=0, atol=1e-9)
    assert (done.cached_tokens < done.prompt_tokens).all()
    assert (done.itl_max_s.fillna(0) <= done.e2e_s - done.ttft_s + 1e-9).all()
    assert (done.itl_max_s.fillna(0) >= done.tpot_s.fillna(0) - 1e-9).all()
    if drain:
        assert counts["unfinished"] == 0
        assert (steps.groupby("replica").kv_blocks_used.last() == 0).all()
        uncached = (done.prompt_tokens - done.cached_tokens).sum()
        assert steps.prefill_tokens.sum() >= uncached
        if not requests.preemptions.any():
            assert steps.prefill_tokens.sum() <= uncached + drafted * len(done)


def check_requests(requests, setup):
    """In the order they were drawn; an answer is cut at its cap and at ``max_model_len``."""
    longest = setup.settings.max_model_len
    for row, drawn in zip(requests.itertuples(), islice(setup.traffic(), len(requests)), strict=True):
        assert row.prompt_tokens == drawn.prompt_tokens
        if row.status == "completed":
            assert row.output_tokens == min(drawn.output_tokens, longest - drawn.prompt_tokens) > 0
        if row.status == "rejected":
            assert (row.output_tokens, row.replica) == (0, -1)


def check_refusal(message, drawn):
    """It names the key, not just the engine, and says what to do."""
    place, _, cure = message.partition("\n  cure: ")
    assert re.match(r"<scenario>: \w+\.[\w.]+: ", place), (message, drawn)
    assert cure, (message, drawn)


@pytest.mark.parametrize("name", SETTINGS)
def test_random_scenarios_lose_nothing(name):
    ran = 0
    for seed in range(SCENARIOS):
        drawn = scenario(name, random.Random(f"{name}{seed}"))
        try:
            result = sim.run(drawn)
        except RidgelineError as error:
            check_refusal(str(error), drawn)
            continue
        ran += 1
        drafts = drawn["engine"].get("speculative") or {"tokens": 0}
        try:
            check(result, drafts["tokens"], drawn["measure"]["drain"])
        except AssertionError as error:
            raise AssertionError(f"{error}\nin {drawn}") from error
    assert ran > SCENARIOS / 3


DELAYS = [0, "20 ms", {"distribution": "exponential", "mean": 0.3}, {"distribution": "uniform", "low": 0, "high": 2}]


def of_people(drawn, chance):
    """The same with sessions, or with clients that give up, or both."""
    traffic, turns = drawn["traffic"], chance.choice([1, 3, {"distribution": "uniform", "low": 1, "high": 5}])
    if chance.random() < 0.7:
        traffic["sessions"] = sessions = {"turns": turns, "think_time": chance.choice(DELAYS)}
        if chance.random() < 0.4:
            sessions["tool_calls"] = {"probability": 0.5, "delay": chance.choice(DELAYS)}
        if turns != 1 and chance.random() < 0.5:
            sessions["fan_out"] = {"after": 1, "branches": chance.choice([1, 3]), "join": chance.random() < 0.7}
    if chance.random() < 0.5:
        traffic["client"] = {"timeout": chance.choice(["30 ms", "0.5 s", "3 s"])}
    if chance.random() < 0.5:
        traffic["cancellation"] = {"probability": 0.4, "after": chance.choice(DELAYS)}
    if chance.random() < 0.5:
        router = chance.choice(["session", "prefix", "least-outstanding"])
        drawn["deployment"] = {"replicas": chance.choice([1, 3]), "router": router}
    return drawn


def check_people(run, engines, drain):
    """Everything sent has an end, every token went to somebody, and nothing is held for those who are gone."""
    result = Result(run)
    counts, requests, tally = result.summary["requests"], result.requests, result.summary["sessions"]
    ended = counts["completed"] + counts["rejected"] + counts["unfinished"] + counts["failed"]
    assert counts["submitted"] == ended == len(requests)
    assert requests.output_tokens.sum() == result.steps.output_tokens.sum()
    numbers = requests.select_dtypes("number").drop(columns=["priority", "replica"])
    assert not (numbers < -1e-9).any().any()
    assert (requests.finish_s.isna() == (requests.status != "completed")).all()
    if drain:
        assert counts["unfinished"] == 0
        assert not any(engine.unfinished or engine.kv_blocks_used for engine in engines)
        if tally is not None:
            assert tally["started"] == tally["completed"] + tally["cut"]
            planned = sum(len(session.turns) for session in run.setup.traffic().sessions())
            assert len(requests) + tally["unsent_requests"] == planned


@pytest.mark.parametrize("name", SETTINGS)
def test_sessions_and_impatience_lose_nothing(name):
    ran = 0
    for seed in range(SCENARIOS):
        chance = random.Random(f"people {name}{seed}")
        drawn = of_people(scenario(name, chance), chance)
        try:
            simulation = Simulation(assemble(load_scenario(drawn)))
        except RidgelineError as error:
            check_refusal(str(error), drawn)
            continue
        ran += 1
        run = simulation.run()
        try:
            check_people(run, [replica.engine for replica in simulation.replicas], drawn["measure"]["drain"])
        except AssertionError as error:
            raise AssertionError(f"{error}\nin {drawn}") from error
    assert ran > SCENARIOS / 3
