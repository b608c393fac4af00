"""Parallelism in a scenario: what is refused, what is said, and what a run makes of it."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.errors import ScenarioError

BASE: dict[str, Any] = {
    "model": "gpt-oss-120b",
    "hardware": "h200-sxm",
    "engine": {"name": "trtllm"},
    "deployment": {"tensor_parallel": 4},
    "traffic": {
        "arrivals": {"process": "closed", "concurrency": 16},
        "requests": 48,
        "prompt_tokens": 1_024,
        "output_tokens": 128,
    },
}


def assumed(changes: dict[str, Any]) -> dict[str, str]:
    summary = sim.run(BASE, overrides={"traffic.requests": 2, **changes}).summary
    return {entry["what"]: entry["value"] for entry in summary["assumed"]}


@pytest.mark.parametrize(
    ("changes", "path", "problem", "cure"),
    [
        ({"deployment.expert_parallel": 3}, "deployment.expert_parallel", "does not divide", "use one of 1, 2, 4"),
        ({"model": "llama-3.1-8b", "deployment.expert_parallel": 4}, "deployment.expert_parallel", "no experts", "1"),
        ({"deployment.tensor_parallel": 3}, "deployment.tensor_parallel", "does not divide the 64", "use one of 1, 2"),
        ({"hardware": "l40s", "deployment.tensor_parallel": 16}, "deployment.tensor_parallel", "joins", "at most 8"),
        ({"deployment.pipeline_parallel": 37}, "deployment.pipeline_parallel", "more than the 36 layers", "at most 36"),
        (
            {"model": "llama-3.1-8b", "deployment.data_parallel": 2},
            "deployment.data_parallel",
            "no experts",
            "replicas",
        ),
        (
            {
                "engine": {"speculative": {"method": "ngram", "tokens": 2, "acceptance": 0.5}},
                "deployment.pipeline_parallel": 2,
            },
            "engine.speculative",
            "pipeline or data",
            "leave it out",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_at_its_key(changes: dict[str, Any], path: str, problem: str, cure: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        sim.run(BASE, overrides=changes)
    found = {one.path: one for one in caught.value.problems}
    assert problem in found[path].problem
    assert cure in found[path].cure


def test_expert_parallelism_inside_a_node_hardly_changes_the_speed_of_decodes() -> None:
    """Measured pairs of gpt-oss-120b on 2 to 8 H200 (TensorRT-LLM): 0.98 to 1.01 of tensor parallelism's TPOT."""
    tensor, expert = (
        sim.run(BASE, overrides={"deployment.expert_parallel": degree}).summary["tpot_s"]["mean"] for degree in (1, 4)
    )
    assert 0.98 < expert / tensor < 1.04
    assert expert != tensor


def test_what_is_not_measured_is_said() -> None:
    """Shares of experts, and links beyond those measured."""
    assert "busiest share of experts" not in assumed({})
    assert assumed({"deployment.expert_parallel": 4})["busiest share of experts"] == "1.4 times the mean of 4 shares"
    assert "all-reduce" not in assumed({})
    llama = {"model": "llama-3.1-8b", "deployment.tensor_parallel": 4}
    assert assumed({**llama, "hardware": "a100-pcie-80gb"})["all-reduce"] == "estimated over PCIe"
    network = assumed({"model": "llama-3.1-8b", "deployment.tensor_parallel": 16})["network"]
    assert network == "50 GB/s for each of 16 devices, 8 to a node"
    rack = assumed({**llama, "hardware": "gb200", "deployment.tensor_parallel": 32})
    assert rack["all-reduce"] == "estimated for 32 devices"
