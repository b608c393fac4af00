"""What ``--set`` and the ``overrides`` of the API may say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.errors import ScenarioError
from sim.scenario import load_scenario, parse_set, parse_value


def test_a_value_is_replaced(base, load):
    spec = load(base, {"traffic.arrivals.rate": 12, "traffic.requests": 5}).spec
    assert (spec.traffic.arrivals.rate, spec.traffic.requests) == (12, 5)


def test_sections_are_made_on_the_way(base, load):
    assert load(base, {"slo.ttft": "50 ms"}).spec.slo.ttft == 0.05
    assert load(base + "slo:\n", {"slo.ttft": "50 ms"}).spec.slo.ttft == 0.05


def test_null_takes_a_key_away(base, load):
    traffic = load(base, {"traffic.requests": None, "traffic.duration": "1 min"}).spec.traffic
    assert (traffic.requests, traffic.duration) == (None, 60)


def test_the_seed_goes_before_all_others(base, load):
    assert load(base, {"seed": 3}, seed=7).spec.seed == 7
    assert load(base, {"seed": 3}).spec.seed == 3
    assert load(base).spec.seed == 1


def test_short_forms_are_written_out(base, load):
    """``hardware: h100-sxm`` becomes a mapping when a figure of it is set, and so does a fixed length."""
    spec = load(base, {"hardware.hbm_bytes_per_s": "5 TB/s", "traffic.prompt_tokens.value": 9}).spec
    assert (spec.hardware.profile, spec.hardware.hbm_bytes_per_s) == ("h100-sxm", 5e12)
    assert spec.traffic.prompt_tokens.value == 9


def test_numpy_values_and_paths_are_taken(base, load, tmp_path):
    """A sweep's values come from np.arange."""
    (tmp_path / "w.csv").write_text("n\n5\n")
    overrides = {
        "traffic.requests": np.int64(5),
        "traffic.arrivals.rate": np.float32(2.5),
        "traffic.output_tokens": {"distribution": "empirical", "path": tmp_path / "w.csv", "column": "n"},
    }
    spec = load(base, overrides).spec
    assert (spec.traffic.requests, spec.traffic.arrivals.rate) == (5, 2.5)


def test_an_alias_overrides_its_own_name_and_the_other_way_round(base, load):
    own = base.replace("engine: {", "engine: {max_sequences: 5, ")
    flag = base.replace("engine: {", "engine: {max-num-seqs: 5, enforce_eager: true, ")
    assert load(own, {"engine.max_num_seqs": 4}).spec.engine.max_sequences == 4
    assert load(flag, {"engine.max_sequences": 4}).spec.engine.max_sequences == 4
    assert load(flag, {"engine.max-num-seqs": 4}).spec.engine.max_sequences == 4
    assert load(flag, {"engine.cuda_graphs": True}).spec.engine.cuda_graphs is True
    assert load(own, {"engine.enforce-eager": True}).spec.engine.cuda_graphs is False
    assert load(own, {"engine.tensor_parallel_size": 2}).spec.deployment.tensor_parallel == 2
    assert load(base, {"engine": {"max_num_seqs": 3}}).spec.engine.max_sequences == 3


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"traffic.arrivals.rate": -1}, "traffic.arrivals.rate: -1 is not above 0\n  cure: give more than 0"),
        ({"traffic.arrivals.rat": 1}, "traffic.arrivals.rat: unknown key\n  cure: did you mean rate?"),
        ({"engin.name": "vllm"}, "engin: unknown key\n  cure: did you mean engine?"),
        ({"engine.max_num_seqs": -3}, "engine.max_num_seqs: -3 is not above 0\n  cure: give more than 0"),
        ({"engine": {"max_num_seqs": -3}}, "engine.max_num_seqs: -3 is not above 0\n  cure: give more than 0"),
        ({"engine.lora.max_loras": 3}, "engine.lora: LoRA is not built yet"),
        ({"traffic.requests": "5"}, "traffic.requests: '5' is not a whole number"),
        ({"traffic.requests.x": 5}, "traffic.requests: holds no keys in the scenario"),
        ({"model.x": 5}, "model: holds no keys in the scenario"),
        ({"": 5}, "is not a path of keys\n  cure: write it as traffic.arrivals.rate"),
        ({"traffic..rate": 5}, "traffic..rate: is not a path of keys"),
        ({".\n": 5}, "is not a path of keys\n  cure: write it as"),
        ({".".join("a" * 99): 5}, "is not a path of keys"),
        (
            {"engine.max_sequences": 1, "engine.max_num_seqs": 1},
            "engine.max_num_seqs: is set twice\n  cure: set it once",
        ),
        ({5: 1}, "5: unknown key"),
    ],
)
def test_what_is_wrong_with_an_override_says_so(overrides, expected, base, complaint):
    message = complaint(base, overrides)
    assert message.startswith("--set: ")
    assert expected in message


def test_the_files_own_problems_come_first(base, complaint):
    message = complaint(base.replace("seed: 1", "sed: 1"), {"traffic.requests": 0})
    assert message.startswith("w.yaml:9: sed")
    assert "\n--set: traffic.requests: 0" in message


def test_overrides_leave_the_callers_data_alone(base):
    scenario = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "traffic": {"arrivals": {"process": "burst"}, "requests": 1, "prompt_tokens": 1, "output_tokens": 1},
    }
    load_scenario(scenario, {"traffic.requests": 5, "engine.max_num_seqs": 3})
    assert scenario["traffic"]["requests"] == 1
    assert "engine" not in scenario


def test_a_mapping_is_a_scenario_too():
    """Its problems have no line; its paths start at the working directory."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario({"model": "llama-3.1-8b", "hardware": "h100-sxm"})
    assert str(caught.value).startswith("<scenario>: traffic: is required and missing\n  cure: ")


def test_data_is_the_scenario_as_overridden(base, load, tmp_path):
    loaded = load(base.replace("engine: {", "engine: {max_num_seqs: 5, "), {"slo.ttft": "1 s"})
    assert loaded.data["engine"] == {"version": "0.33", "max_sequences": 5}
    assert loaded.data["slo"] == {"ttft": "1 s"}
    assert (loaded.base_dir, loaded.file) == (tmp_path, str(tmp_path / "w.yaml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1", ("a.b", 1)),
        ("a.b=8e3", ("a.b", 8000.0)),
        ("a.b=50 ms", ("a.b", "50 ms")),
        ("a=", ("a", None)),
        ("a=x=y", ("a", "x=y")),
        ("a={x: 1}", ("a", {"x": 1})),
        ("a=yes", ("a", "yes")),
        ("engine.version=0.10", ("engine.version", "0.10")),
        ('engine.version="0.10"', ("engine.version", "0.10")),
    ],
)
def test_parse_set(text, expected):
    """Values are YAML, but a version is a text whether quoted or not."""
    assert parse_set(text) == expected


@pytest.mark.parametrize("text", ["rate", "=1", "a=[1", "a={x: 1, x: 2}", "a=!!python/name:os.system x"])
def test_a_setting_that_cannot_be_read(text):
    with pytest.raises(ScenarioError, match=r"(?s)^--set.*cure: "):
        parse_set(text)


def test_a_version_set_blank_is_the_newest(base, load):
    assert parse_value("engine.version", "null") is None
    assert load(base, {"engine.version": None}).spec.engine.version is None


def test_paths_are_seen_from_the_scenarios_folder(base, load, tmp_path, monkeypatch):
    (tmp_path / "lengths.csv").write_text("n\n5\n")
    monkeypatch.chdir("/")
    text = base.replace("prompt_tokens: 512", "prompt_tokens: {distribution: empirical, path: lengths.csv, column: n}")
    assert Path(load(text).spec.traffic.prompt_tokens.path) == Path("lengths.csv")
