"""Broken files: the exact text a user meets, each with file, line, key path, problem and cure."""

import time

import pytest

from sim.errors import ScenarioError
from sim.scenario import load_scenario

CASES = {
    "unknown key": (
        ("seed: 1", "sed: 1"),
        "w.yaml:9: sed: unknown key\n  cure: did you mean seed?",
    ),
    "unknown key in a section": (
        ("requests: 100", "request: 100\n  duration: 10 s"),
        "w.yaml:6: traffic.request: unknown key\n  cure: did you mean requests?",
    ),
    "key of another section": (
        ("seed: 1", "replicas: 2"),
        "w.yaml:9: replicas: unknown key\n  cure: did you mean deployment.replicas?",
    ),
    "wrong type": (
        ("requests: 100", "requests: many"),
        "w.yaml:6: traffic.requests: 'many' is not a whole number\n  cure: give a whole number, without a unit",
    ),
    "a flag for a number": (
        ("requests: 100", "requests: true"),
        "w.yaml:6: traffic.requests: true is not a whole number\n  cure: give a whole number, without a unit",
    ),
    "half a request": (
        ("requests: 100", "requests: 10.5"),
        "w.yaml:6: traffic.requests: 10.5 is not a whole number\n  cure: give a whole number, without a unit",
    ),
    "yes is a text": (
        ('{version: "0.33"}', "{prefix_caching: yes}"),
        "w.yaml:3: engine.prefix_caching: 'yes' is not true or false\n  cure: give true or false",
    ),
    "negative rate": (
        ("rate: 8", "rate: -8"),
        "w.yaml:5: traffic.arrivals.rate: -8 is not above 0\n  cure: give more than 0",
    ),
    "NaN": (
        ("rate: 8", "rate: .nan"),
        "w.yaml:5: traffic.arrivals.rate: nan is not a finite number\n  cure: give a finite number",
    ),
    "infinity": (
        ("rate: 8", "rate: .inf"),
        "w.yaml:5: traffic.arrivals.rate: inf is not a finite number\n  cure: give a finite number",
    ),
    "overflow": (
        ("rate: 8", "rate: 1e999"),
        "w.yaml:5: traffic.arrivals.rate: inf is not a finite number\n  cure: give a finite number",
    ),
    "too many": (
        ("requests: 100", "requests: 1e12"),
        "w.yaml:6: traffic.requests: 1000000000000 is more than 100,000,000\n  cure: give 100,000,000 or less",
    ),
    "version as a number": (
        ('version: "0.33"', "version: 0.33"),
        (
            "w.yaml:3: engine.version: 0.33 is a number, and a version is a text\n"
            '  cure: put it in quotes: "0.33" (as a number, 0.10 would be 0.1)'
        ),
    ),
    "unknown unit": (
        ("seed: 1", "slo: {ttft: 3 fortnights}"),
        (
            "w.yaml:9: slo.ttft: unknown unit 'fortnights' in '3 fortnights'\n"
            "  cure: give a number, or one with a unit: s, ms, us, µs, ns, min, h, d"
        ),
    ),
    "unit of another quantity": (
        ("seed: 1", "slo: {ttft: 3 GiB}"),
        (
            "w.yaml:9: slo.ttft: unknown unit 'GiB' in '3 GiB'\n"
            "  cure: give a number, or one with a unit: s, ms, us, µs, ns, min, h, d"
        ),
    ),
    "more than the whole": (
        ("seed: 1", "slo: {attainment: 99}"),
        (
            "w.yaml:9: slo.attainment: 99 is more than the whole\n"
            "  cure: give a share of at most 1, or a percentage such as '99 %'"
        ),
    ),
    "duplicate key": (
        ("seed: 1", "seed: 1\nseed: 2"),
        "w.yaml:10: seed: the key is already on line 9\n  cure: keep one of them",
    ),
    "wrong choice": (
        ("poisson", "poison"),
        "w.yaml:5: traffic.arrivals.process: 'poison' is not one of the choices\n  cure: did you mean poisson?",
    ),
    "no process": (
        ("process: poisson, rate: 8", "concurrency: 8"),
        "w.yaml:5: traffic.arrivals: says no process\n  cure: add process: one of closed, aiperf, llmperf",
    ),
    "no distribution": (
        ("prompt_tokens: 512", "prompt_tokens: {mean: 512, p99: 4000}"),
        "w.yaml:7: traffic.prompt_tokens: says no distribution\n  cure: add distribution: lognormal",
    ),
    "a list for a length": (
        ("prompt_tokens: 512", "prompt_tokens: [1, 2]"),
        (
            "w.yaml:7: traffic.prompt_tokens: [1, 2] is not a whole number, or keys with values\n"
            "  cure: write 512, or {distribution: lognormal, mean: 512, p99: 4000}"
        ),
    ),
    "a text for a mapping": (
        ("{process: poisson, rate: 8}", "poisson"),
        "w.yaml:5: traffic.arrivals: 'poisson' is not keys with values\n  cure: write {process: poisson, ...}",
    ),
    "missing key": (
        ("  prompt_tokens: 512\n", ""),
        "w.yaml:4: traffic.prompt_tokens: missing\n  cure: add prompt_tokens: 512, or a distribution",
    ),
    "keys that are no texts": (
        ("seed: 1", "~: 1\ntrue: 1\n5: 1"),
        "\n".join(
            f"w.yaml:{line}: {key}: unknown key\n"
            "  cure: known here: model, hardware, engine, deployment, traffic, slo, cost, measure, metrics, seed"
            for line, key in ((9, "~"), (10, "true"), (11, "5"))
        ),
    ),
    "missing files": (
        ("llama-3.1-8b", "./there/is/none.json"),
        "w.yaml:1: model: no preset and no file is called './there/is/none.json'",
    ),
    "misspelt hardware": (
        ("h100-sxm", "h100-smx"),
        "w.yaml:2: hardware: no profile and no file is called 'h100-smx'\n  cure: did you mean h100-sxm",
    ),
    "missing trace": (
        ("{process: poisson, rate: 8}", "{process: trace, path: none.csv}"),
        (
            "w.yaml:5: traffic.arrivals.path: no file is called 'none.csv'\n"
            "  cure: give the path of a file, seen from the scenario's folder"
        ),
    ),
    "missing table of lengths": (
        ("prompt_tokens: 512", "prompt_tokens: {distribution: empirical, path: none.csv, column: x}"),
        (
            "w.yaml:7: traffic.prompt_tokens.path: no file is called 'none.csv'\n"
            "  cure: give the path of a file, seen from the scenario's folder"
        ),
    ),
    "tab": (
        ("  requests", "\trequests"),
        "w.yaml:6: not YAML: found character '\\t' that cannot start any token\n  cure: mend the syntax there",
    ),
    "bracket": (
        ("rate: 8}", "rate: 8"),
        "w.yaml:6: not YAML: expected ',' or '}', but got ':'\n  cure: mend the syntax there",
    ),
    "two documents": (
        ("seed: 1", "---\nseed: 1"),
        "w.yaml:9: not YAML: but found another document\n  cure: mend the syntax there",
    ),
    "an object of Python": (
        ("llama-3.1-8b", "!!python/object/apply:os.system [ls]"),
        (
            "w.yaml:1: tags are refused: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.system'\n  cure: write plain texts, numbers, lists and mappings"
        ),
    ),
    "a number of 5,000 digits": (
        ("requests: 100", "requests: 1" + 4999 * "0"),
        "w.yaml:6: not YAML: a number of 5,000 digits\n  cure: mend the syntax there",
    ),
    "a control character": (
        ("h100-sxm", "h100\0sxm"),
        "w.yaml:2: not YAML: the character 0x0000\n  cure: mend the syntax there",
    ),
    "too deep": (
        ("seed: 1", "seed: " + 5000 * "[" + 5000 * "]"),
        "w.yaml:9: not YAML: more than 32 levels deep\n  cure: mend the syntax there",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_broken_file_says_where_what_and_the_cure(case, base, complaint):
    (right, wrong), expected = CASES[case]
    assert right in base
    message = complaint(base.replace(right, wrong))
    assert message.startswith(expected)
    assert expected.count("cure") == 0 or message.count("cure:") == expected.count("cure:")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"# only a comment\n", "is empty"),
        (b"hello\n", "holds no keys with values"),
        (b"- a\n- b\n", "holds no keys with values"),
        (b"\x89PNG\r\n\x1a\n\xff", "cannot be read: it is not text in UTF-8"),
        (b"a: b\n" * 300_000, "is larger than 1 MiB"),
    ],
)
def test_what_is_no_scenario_at_all(content, what, complaint):
    assert complaint(content).startswith(f"w.yaml: {what}\n  cure: ")


def test_a_billion_laughs_are_refused_at_once(base, complaint):
    """Ten levels of ten aliases each: 10^10 values if they were written out."""
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 11))
    start = time.perf_counter()
    message = complaint(base + bomb)
    assert time.perf_counter() - start < 2
    assert "more than 50,000 values once its aliases are written out" in message
    assert message.startswith("w.yaml:1")


def test_an_alias_within_itself_is_refused(base, complaint):
    assert "nested without end" in complaint(base + "x: &a [*a]\n")


def test_a_long_list_stops_early(base, complaint):
    """Half a million values in a file below 1 MiB: refused before all of them are read."""
    start = time.perf_counter()
    assert "more than 50,000 values" in complaint(base + "x: [" + "1," * 450_000 + "]\n")
    assert time.perf_counter() - start < 20


def test_small_anchors_work(base, load):
    text = base.replace("prompt_tokens: 512", "prompt_tokens: &n {distribution: uniform, low: 1, high: 9}")
    spec = load(text.replace("output_tokens: 64", "output_tokens: *n")).spec
    assert spec.traffic.prompt_tokens == spec.traffic.output_tokens


def test_all_problems_at_once_in_the_files_order(complaint):
    """Wrong values, unknown keys, refused ones and contradictions, whatever part finds them."""
    text = """\
model: lama-3.1-8b
hardware: h100-sxm
traffic:
  arrivals: {process: gamma, rate: 8}
  requests: 0
  prompt_tokens: {distribution: lognormal, mean: 100, p99: 2000}
  output_token: 5
  lora: []
engine:
  name: tgi
  max_num_seqs: -1
seed: x
"""
    lines = [line.partition("\n")[0] for line in complaint(text).split("w.yaml:")[1:]]
    assert lines == [
        "1: model: no preset and no file is called 'lama-3.1-8b'",
        "3: traffic.output_tokens: missing",
        "4: traffic.arrivals.cv: gamma needs either cv or burstiness (1 / cv^2)",
        "5: traffic.requests: 0 is not above 0",
        "6: traffic.prompt_tokens.p99: p99 / mean is 20, a lognormal reaches from 1 to 14.97",
        "7: traffic.output_token: unknown key",
        "8: traffic.lora: LoRA is not built yet",
        "10: engine.name: 'tgi' is not one of the choices",
        "11: engine.max_num_seqs: -1 is not above 0",
        "12: seed: 'x' is not a whole number",
    ]


def test_thousands_of_problems_are_counted(base, complaint):
    message = complaint(base + "".join(f"key{i}: 1\n" for i in range(3000)))
    assert message.count("unknown key") == 200
    assert "2,800 more problems" in message


def test_a_missing_file_names_the_examples(tmp_path):
    with pytest.raises(
        ScenarioError, match=r"none\.yaml: no such file\n  cure: name a scenario file, or an example: .*chat"
    ):
        load_scenario(tmp_path / "none.yaml")


def test_a_folder_is_no_scenario(tmp_path):
    with pytest.raises(ScenarioError, match="is a folder"):
        load_scenario(tmp_path)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-of-that-name/w.yaml", ""])
def test_names_no_file_can_have(name, base, load):
    """As a scenario's own name, and within one."""
    with pytest.raises(ScenarioError):
        load_scenario(name)
    for key in ("model", "hardware"):
        with pytest.raises(ScenarioError, match=rf"--set: {key}: no \w+ and no file"):
            load(base, {key: name})


def test_a_later_problem_finds_its_line(base, load):
    """What only the run finds out (a model too large, a split that does not divide) points into the file too."""
    loaded = load(base + "deployment:\n  tensor_parallel_size: 3\n", {"engine.max_num_seqs": 4})
    problem = loaded.problem("deployment.tensor_parallel", "3 does not divide 32 heads", "use 1, 2, 4")
    assert str(problem).endswith(
        "w.yaml:11: deployment.tensor_parallel_size: 3 does not divide 32 heads\n  cure: use 1, 2, 4"
    )
    assert str(loaded.problem("engine.kv_blocks", "x", "y")).partition("w.yaml")[2].startswith(":3: engine.kv_blocks:")
    assert str(loaded.problem("engine.max_sequences", "x", "y")).startswith("--set: engine.max_num_seqs: x")
    assert loaded.problem("", "does not fit", "use more").line is None
