"""Whatever is in a file, mapping or override: a scenario or a ScenarioError, nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario import load_scenario, parse_set
from sim.scenario.keys import ALIASES, REFUSED_KEYS
from sim.scenario.specs import DeploymentSpec, EngineSpec, Scenario, TrafficSpec

KEYS = sorted(
    {
        *Scenario.model_fields,
        *EngineSpec.model_fields,
        *DeploymentSpec.model_fields,
        *TrafficSpec.model_fields,
        *ALIASES,
    }
    | {part for key in REFUSED_KEYS for part in key.split(".")}
    | {"process", "rate", "cv", "distribution", "mean", "p99", "low", "high", "path", "column", "profile", "0", "-1"}
)
WORDS = [
    "poisson",
    "gamma",
    "closed",
    "trace",
    "burst",
    "lognormal",
    "uniform",
    "empirical",
    "linear",
    "roofline",
    "vllm",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**400, 10**401)
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([*WORDS, "h100-sxm", "llama-3.1-8b", "1 s", "5 GiB", "~x/y", "a" * 5000, "1e999999", "."])
)
NAMES = st.sampled_from(KEYS) | st.text(max_size=5) | SCALARS.filter(lambda key: not isinstance(key, float))
VALUES = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(NAMES, children, max_size=4),
    max_leaves=12,
)
MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
RIGHT = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", "max_num_seqs": 4},
    "deployment": {"tensor_parallel": 1},
    "traffic": {
        "arrivals": {"process": "gamma", "rate": "8 /s", "cv": 2},
        "requests": 5,
        "prompt_tokens": {"distribution": "lognormal", "mean": 100, "p99": 500},
        "output_tokens": 5,
        "priorities": {0: 1.0},
    },
    "slo": {"ttft": "1 s"},
    "cost": {"model": "linear", "step_s": 1},
    "measure": {"warmup": "1 s"},
}


def loads_or_complains(scenario, overrides=None):
    """The scenario; or None, after seeing that every problem names a place and a cure, on one line each."""
    try:
        return load_scenario(scenario, overrides)
    except ScenarioError as error:
        problems = error.problems
    assert problems
    for problem in problems:
        assert all((problem.file, problem.problem, problem.cure))
        assert str(problem).count("\n") == 1
    return None


@MANY
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path, content):
    path = tmp_path / "w.yaml"
    path.write_bytes(content)
    loads_or_complains(path)


@MANY
@given(st.text(alphabet=" \n:-?[]{},&*#!|>'\"%@`~<=ab01.\t\0é\ufeff", max_size=200))
def test_any_text_of_yamls_own_characters(tmp_path, text):
    path = tmp_path / "w.yaml"
    path.write_text(text)
    loads_or_complains(path)


@MANY
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_good_file_with_bytes_changed(tmp_path, base, seed, changes):
    draw = random.Random(seed)
    content = bytearray(base.encode())
    for _ in range(changes):
        content[draw.randrange(len(content))] = draw.choice(b" :{}[],-0x'\"&*\n!9e.")
    path = tmp_path / "w.yaml"
    path.write_bytes(content)
    loads_or_complains(path)


@MANY
@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_mapping(scenario):
    loads_or_complains(scenario)


@MANY
@given(st.data(), VALUES)
def test_a_good_mapping_with_one_value_replaced(data, value):
    loads_or_complains(replaced(RIGHT, data, value))


def replaced(node, data, value):
    """``node`` with one value, at any depth, or one new key."""
    if not isinstance(node, Mapping) or not node or (data.draw(st.booleans()) and node is not RIGHT):
        return value
    key = data.draw(st.sampled_from(list(node)) | NAMES)
    return {**node, key: replaced(node.get(key), data, value)}


@MANY
@given(st.lists(st.sampled_from(KEYS) | st.text(max_size=4), min_size=1, max_size=4).map(".".join), VALUES)
def test_any_override(path, value):
    loads_or_complains(RIGHT, {path: value})


@MANY
@given(st.text(max_size=40))
def test_any_setting(text):
    try:
        path, value = parse_set(text)
    except ScenarioError:
        return
    loads_or_complains(RIGHT, {path: value})


def test_the_good_mapping_is_good():
    right = {**RIGHT, "engine": {**RIGHT["engine"], "policy": "priority"}}
    assert loads_or_complains(right).spec.traffic.priorities == {0: 1.0}


def test_a_mapping_within_itself():
    endless = dict(RIGHT)
    endless["slo"] = endless
    with pytest.raises(ScenarioError, match="nested without end"):
        load_scenario(endless)
