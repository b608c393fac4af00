"""No setting is silently ignored, and settings the engine would refuse are refused."""

import pytest

import sim
from sim.errors import ScenarioError

ABSTRACT = {
    "model": {"parameters": 8e9},
    "hardware": "h100-sxm",
    "traffic": {
        "arrivals": {"process": "poisson", "rate": 2},
        "requests": 10,
        "prompt_tokens": 100,
        "output_tokens": 10,
    },
}
LINEAR = {"model": "linear", "step_s": 0.01}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"engine.kv_blocks": 100}, "engine.kv_blocks"),
        ({"engine.kv_dtype": "fp8"}, "engine.kv_dtype"),
        ({"engine.prefix_caching": True}, "engine.prefix_caching"),
        ({"slo.attainment": 0.9}, "slo.attainment"),
        (
            {"hardware": {"profile": "h100-sxm", "host_slowdown": 2}, "cost.efficiency": "ideal"},
            "hardware.host_slowdown",
        ),
        ({"hardware": {"profile": "h100-sxm", "hbm_bytes_per_s": 5e12}, "cost": LINEAR}, "hardware.hbm_bytes_per_s"),
        ({"engine.max_batched_tokens": 16, "engine.max_sequences": 32}, "engine.max_batched_tokens"),
        (
            {"engine.max_batched_tokens": 512, "engine.max_sequences": 8, "engine.chunked_prefill": False},
            "engine.max_batched_tokens",
        ),
        ({"engine.weight_dtype": "fp8"}, "engine.weight_dtype"),
        ({"traffic.priorities": {0: 1, 1: 1}}, "traffic.priorities"),
    ],
    ids=str,
)
def test_keys_that_decide_nothing_are_refused(changes, path):
    with pytest.raises(ScenarioError) as caught:
        sim.run(ABSTRACT, overrides=changes)
    assert path in {problem.path for problem in caught.value.problems}


DENSE = {
    **ABSTRACT,
    "model": "llama-3.1-8b",
    "traffic": {
        "arrivals": {"process": "poisson", "rate": 30},
        "requests": 120,
        "prompt_tokens": {"distribution": "lognormal", "mean": 700, "p99": 4000},
        "output_tokens": {"distribution": "lognormal", "mean": 60, "p99": 300},
    },
}


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.version": "0.19"},
        {"engine.weight_dtype": "fp8"},
        {"engine.kv_dtype": "fp8"},
        {"engine.max_batched_tokens": 1024},
        {"engine.max_sequences": 4},
        {"engine.block_tokens": 32},
        {"engine.gpu_memory_utilization": 0.5},
        {"engine.kv_blocks": 600, "engine.max_model_len": 9000},
        {"engine.prefix_caching": False, "traffic.shared_prefix": {"tokens": 300}},
        {"engine.long_prefill_threshold": 128},
        {"engine.async_scheduling": False},
        {"engine.cuda_graphs": False},
        {"engine.usage": "offline"},
        {"engine.max_model_len": 600},
        {"deployment.tensor_parallel": 2},
        {"deployment.replicas": 2},
        {"deployment": {"replicas": 2, "router": "random"}},
        {"hardware": "h200-sxm"},
        {"hardware": {"profile": "h100-sxm", "host_slowdown": 3}},
        {"hardware": {"profile": "h100-sxm", "hbm_bytes_per_s": "5 TB/s"}},
        {"hardware": {"profile": "h100-sxm", "memory_bytes": "60 GiB"}},
        {"cost.efficiency": "ideal"},
        {"traffic.max_output_tokens": 20},
        {"traffic.arrivals.max_concurrency": 2},
        {"traffic.duration": "2 s"},
        {"measure.warmup": 20},
        {"measure.warmup": "1 s"},
        {"measure.drain": False},
        {"slo.ttft": "50 ms"},
        {"seed": 1},
    ],
    ids=str,
)
def test_every_key_changes_the_result(changes):
    """inference-sim#1035: a key that is accepted has an effect."""
    plain = sim.run(DENSE).summary
    changed = sim.run(DENSE, overrides=changes).summary
    figures = ("ttft_s", "tpot_s", "e2e_s", "kv", "slo", "requests", "duration_s", "bound", "throughput")
    assert any(plain[name] != changed[name] for name in figures)


def test_a_set_warmup_leaves_requests_out():
    summary = sim.run(DENSE, overrides={"measure.warmup": 20}).summary
    assert summary["requests"]["submitted"] == 100


def test_without_drain_what_is_unfinished_is_counted_as_such():
    summary = sim.run(DENSE, overrides={"measure.drain": False}).summary
    assert summary["requests"]["unfinished"] > 0


@pytest.mark.parametrize("version", ["0.9", "0.14", "0.19", "0.25"])
def test_versions_decide_the_rules_and_say_so(version):
    summary = sim.run(DENSE, overrides={"engine.version": version}).summary
    assert summary["engine"]["version"] == version
    assert summary["engine"]["settings"]["async_scheduling"] == (version != "0.9")


@pytest.mark.parametrize(("step_s", "said"), [("4 ms", True), ("5 ms", False)])
def test_a_linear_step_faster_than_bandwidth_is_called_so(step_s, said):
    """8e9 parameters in 16 bits take 4.77 ms to read on an H100."""
    summary = sim.run(ABSTRACT, overrides={"cost": {"model": "linear", "step_s": step_s}}).summary
    assert ("decode steps" in {assumption["what"] for assumption in summary["assumed"]}) == said
