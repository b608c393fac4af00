"""Every key and value of the design is accepted or refused by name, never ignored."""

from __future__ import annotations

import pytest

from sim.parallel import Parallelism
from sim.scenario.specs import Scenario


def put(base, path, value):
    """``base`` and the override that writes ``value`` there."""
    return base, {path: value}


ACCEPTED = {
    "engine.name": "vllm",
    "engine.version": "0.33",
    "engine.weight_dtype": "fp8",
    "engine.kv_dtype": "fp8",
    "engine.max_batched_tokens": 8192,
    "engine.max_sequences": 256,
    "engine.max_model_len": 8192,
    "engine.block_tokens": 16,
    "engine.gpu_memory_utilization": 0.9,
    "engine.kv_blocks": 1000,
    "engine.chunked_prefill": True,
    "engine.prefix_caching": True,
    "engine.long_prefill_threshold": 512,
    "engine.policy": "priority",
    "engine.async_scheduling": True,
    "engine.speculative": {"method": "ngram", "tokens": 3, "acceptance": 0.5},
    "engine.max_prefill_tokens": 4096,
    "engine.priority_preemption": True,
    "engine.capacity_policy": "max-utilization",
    "engine.chunking_policy": "equal-progress",
    "engine.schedule_conservativeness": 0.5,
    "engine.mixed_chunk": True,
    "engine.ignore_eos": True,
    "engine.scheduler_recv_interval": 10,
    "deployment.replicas": 2,
    "deployment.tensor_parallel": 2,
    "deployment.pipeline_parallel": 4,
    "deployment.data_parallel": 2,
    "deployment.expert_parallel": 8,
    "traffic.requests": 5,
    "traffic.duration": "10 min",
    "traffic.max_output_tokens": 100,
    "traffic.shared_prefix": {"tokens": 100, "groups": 3, "popularity": "zipf", "prompts_per_group": 4},
    "traffic.sessions": {
        "turns": 3,
        "first_prompt_tokens": 2000,
        "think_time": {"distribution": "exponential", "mean": "10 s"},
        "tool_calls": {"probability": "50 %", "delay": "2 s", "tokens": 300},
        "fan_out": {"after": 1, "branches": 2, "turns": {"distribution": "uniform", "low": 1, "high": 3}, "join": True},
    },
    "traffic.client": {"timeout": "1 min"},
    "traffic.cancellation": {"probability": 0.1, "after": {"distribution": "lognormal", "mean": 5, "sigma": 1}},
    "traffic.arrivals": {"process": "closed", "concurrency": 4},
    "deployment.router": "session",
    "slo": {"ttft": "1 s", "tpot": "50 ms", "attainment": 0.99},
    "cost": {"model": "roofline", "efficiency": "ideal"},
    "measure": {"warmup": 5, "drain": False},
    "seed": 5,
    "model": {"parameters": 8e9, "weight_dtype": "fp16"},
}

REFUSED = [
    ("deployment.prefill", {"replicas": 1}),
    ("deployment.decode", {"replicas": 1}),
    ("engine.lora", {}),
    ("engine.enable_lora", True),
    ("engine.max-loras", 3),
    ("lora", {}),
]  # fmt: skip


@pytest.mark.parametrize("path", ACCEPTED)
def test_what_the_design_names_is_accepted(path, base, load):
    """And arrives in the spec."""
    value = ACCEPTED[path]
    spec = load(base, {path: value}).spec
    for part in path.split("."):
        spec = getattr(spec, part)
    assert spec != getattr(Scenario.model_fields.get(path), "default", None)


@pytest.mark.parametrize(
    ("process", "parameters"),
    [
        ("poisson", {"rate": 3}),
        ("gamma", {"rate": 3, "cv": 2}),
        ("gamma", {"rate": 3, "burstiness": 0.25}),
        ("constant", {"rate": 3}),
        ("burst", {}),
        ("ramp", {"from": 1, "to": 9, "over": 3600, "shape": "linear"}),
        ("diurnal", {"mean": 1, "amplitude": 1, "period": 86400}),
        ("trace", {"path": "w.yaml", "format": "azure", "time_scale": 0.5}),
        ("trace", {"path": "w.yaml", "format": "mooncake"}),
        ("trace", {"path": "w.yaml", "format": "table"}),
        ("trace", {"path": "w.yaml", "format": "auto"}),
    ],
)
def test_processes_may_have_a_max_concurrency(process, parameters, base, load):
    arrivals = load(
        base, {"traffic.arrivals": {"process": process, **parameters, "max_concurrency": 7}}
    ).spec.traffic.arrivals
    dumped = arrivals.model_dump(exclude_unset=True, by_alias=True)
    assert dumped == {
        "process": process,
        **parameters,
        "max_concurrency": 7,
    }


@pytest.mark.parametrize(
    ("distribution", "parameters"),
    [
        ("fixed", {"value": 5}),
        ("uniform", {"low": 1, "high": 5}),
        ("normal", {"mean": 5, "std": 1, "low": 1, "high": 9}),
        ("lognormal", {"mean": 5, "p99": 9, "low": 1, "high": 9}),
        ("lognormal", {"mean": 5, "sigma": 1}),
        ("empirical", {"path": "w.yaml", "column": "x"}),
    ],
)
def test_distributions(distribution, parameters, base, load):
    lengths = load(
        base, {"traffic.output_tokens": {"distribution": distribution, **parameters}}
    ).spec.traffic.output_tokens
    assert lengths.model_dump(exclude_unset=True) == {"distribution": distribution, **parameters}


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm", "sarathi", "orca", "static", "llama.cpp"])
def test_engines(name, base, load):
    assert load(base, {"engine.name": name}).spec.engine.name == name


@pytest.mark.parametrize("router", ["round-robin", "random", "least-outstanding", "power-of-two"])
def test_routers(router, base, load):
    assert load(base, {"deployment.router": router}).spec.deployment.router == router


def test_the_linear_model(base, load):
    cost = {
        "model": "linear",
        "prefill_step_s": 0,
        "prefill_s_per_token": 20e-6,
        "step_s": 5e-3,
        "step_s_per_sequence": "50 us",
        "step_s_per_context_token": 0,
    }
    assert load(base, {"cost": cost}).spec.cost.step_s_per_sequence == 50e-6


@pytest.mark.parametrize(("path", "value"), REFUSED, ids=str)
def test_what_is_not_built_is_refused_by_name(path, value, base, complaint):
    """In one problem that names it, with something to do instead."""
    message = complaint(base, {path: value})
    assert "is not built yet\n  cure: " in message
    assert message.startswith(f"--set: {path}")
    assert message.count("cure:") == 1
    if isinstance(value, str):
        assert value in message.partition("\n")[0]


def test_a_refused_key_in_a_file_has_its_line(base, complaint):
    message = complaint(base + "deployment:\n  prefill: {replicas: 2}\n  enable-dp-attention: true\n")
    assert message.startswith("w.yaml:11: deployment.prefill: disaggregated serving is not built yet\n  cure: ")
    assert "\nw.yaml:12: deployment.enable-dp-attention: says how data-parallel ranks share" in message
    assert "write the ranks as data_parallel" in message


def test_degrees_of_parallelism_under_the_engines_names(base, load):
    """Pipeline and data parallelism as vLLM calls them; its flag splits experts over all GPUs of a stage."""
    flags = "tensor-parallel-size: 2, data_parallel_size: 4, pipeline-parallel-size: 3"
    for experts, expert in (
        ("enable_expert_parallel: true", 8),
        ("enable-expert-parallel: false", 1),
        ("ep_size: 4", 4),
    ):
        spec = load(base + f"deployment: {{{experts}, {flags}}}\n").spec.deployment
        assert spec.parallel == Parallelism(tensor=2, pipeline=3, data=4, expert=expert)
        assert spec.parallel.devices == 24


def test_no_degree_is_below_one(base, complaint):
    for key in ("pipeline_parallel", "data_parallel", "expert_parallel"):
        assert f"deployment.{key}" in complaint(base, {f"deployment.{key}": 0})


def test_a_list_of_lengths_is_no_trace(base, complaint):
    """The design lists it among the formats; it has no times, so that it stands beside another process."""
    message = complaint(base, {"traffic.arrivals": {"process": "trace", "path": "w.yaml", "format": "sharegpt"}})
    assert "sharegpt: a list of lengths has no times of arrivals" in message
    assert "traffic.lengths: {path: lengths.csv}" in message
