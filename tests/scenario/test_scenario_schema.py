"""The JSON Schema for editors, and the starter."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from sim.scenario import scenario_schema, starter_yaml
from sim.scenario.keys import ALIASES
from sim.yaml12 import parse_yaml


@pytest.fixture(scope="module")
def schema():
    return scenario_schema()


@pytest.fixture
def accepts(schema):
    """Whether the schema takes a text; keys become texts, as in JSON."""
    validator = jsonschema.Draft202012Validator(schema)
    return lambda text: validator.is_valid(json.loads(json.dumps(parse_yaml(text, "w.yaml").data)))


def test_it_is_a_schema(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


def test_it_takes_the_starter_and_the_examples(repo, accepts, base):
    examples = sorted((repo / "workloads").rglob("*.yaml"))
    assert examples
    for text in (starter_yaml(), base, *(path.read_text() for path in examples)):
        assert accepts(text)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("seed: 1", "sed: 1"),
        ("requests: 100", "requests: many"),
        ("requests: 100", "requests: 0"),
        ("rate: 8", "rate: -8"),
        ("rate: 8", "rate: 8 GiB"),
        ('version: "0.33"', "version: 0.33"),
        ("poisson", "poison"),
        ("prompt_tokens: 512", "prompt_tokens: 0"),
        ('version: "0.33"', "max_num_seqs: 0"),
        ('version: "0.33"', "name: tgi"),
        ("seed: 1", "deployment: {pipeline_parallel: 0}"),
        ('version: "0.33"', "speculative: {method: ngram, tokens: 3, acceptance: 1.5}"),
        ('version: "0.33"', "speculative: {method: medusa, tokens: 3, acceptance: 0.5}"),
    ],
)
def test_it_refuses_what_loading_refuses(right, wrong, base, accepts):
    assert not accepts(base.replace(right, wrong))


@pytest.mark.parametrize(
    "extra",
    [
        "slo: {ttft: 1 s, tpot: 50ms, attainment: 99 %}",
        "slo:",
        "measure: {warmup: 30 s}",
        "measure: {warmup: 30}",
        "deployment: {tensor_parallel_size: 2}",
        "cost: {model: linear, step_s: 5e-3}",
    ],
)
def test_it_takes_units_aliases_and_blank_sections(extra, base, accepts, load):
    assert load(base + extra)
    assert accepts(base + extra)


def test_it_knows_every_alias(schema):
    """With dashes and underscores, and says what each stands for."""
    keys = schema["$defs"]["EngineSpec"]["properties"] | schema["$defs"]["DeploymentSpec"]["properties"]
    for alias, target in ALIASES.items():
        for spelling in (alias, alias.replace("_", "-")):
            assert keys[spelling]["description"].endswith(target)


def test_every_key_is_described(schema):
    """An editor shows what a key means; choices that explain themselves and short forms aside."""
    plain = {"name", "process", "distribution", "model", "efficiency"}
    for name in ("EngineSpec", "DeploymentSpec", "TrafficSpec", "SloSpec"):
        keys = schema["$defs"][name]["properties"]
        bare = {
            key for key, said in keys.items() if "description" not in said and "$ref" not in json.dumps(said)
        } - plain
        assert bare <= {"pipeline_parallel", "data_parallel", "expert_parallel"}


def test_the_starter_loads_and_says_how_to_go_on(load):
    spec = load(starter_yaml()).spec
    assert spec.traffic.requests == 1000
    assert "sim run" in starter_yaml()


def test_the_starters_comments_load_too(load):
    """Every key that is commented out is right, one at a time."""
    lines = starter_yaml().splitlines()
    tried = 0
    for index, line in enumerate(lines):
        bare = line.lstrip()
        key = bare.removeprefix("# ").partition(":")[0]
        if not bare.startswith("# ") or not key.isidentifier():
            continue
        live = line.replace("# ", "", 1)
        siblings = [other for other in lines if other.startswith(f"{key}:")]
        assert not siblings
        assert load("\n".join([*lines[:index], live, *lines[index + 1 :]]))
        tried += 1
    assert tried >= 8


def test_pyyaml_reads_the_starter_alike():
    """No key of the starter depends on YAML 1.2."""
    assert yaml.safe_load(starter_yaml()) == parse_yaml(starter_yaml(), "w.yaml").data


@pytest.mark.parametrize(
    "speculative",
    [
        "speculative: {method: ngram, tokens: 3, acceptance: [1, 90 %, 0.5]}",
        "speculative_config: {method: draft_model, num-speculative-tokens: 3, acceptance: 0.5, model: llama-3.2-1b}",
    ],
)
def test_it_takes_speculation_in_either_s_words(speculative, base, accepts, load):
    text = base.replace('version: "0.33"', speculative)
    assert load(text)
    assert accepts(text)
