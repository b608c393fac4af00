"""Broken files through the command: status 2, nothing on stdout, place and cure on stderr, nothing written."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"
TRACED = """\
model: llama-3.1-8b
hardware: h100-sxm
traffic:
  arrivals: {process: trace, path: t.csv}
"""
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 11))

CHANGED = {
    "unknown key": ("seed: 1", "sed: 1", "w.yaml:9: sed: unknown key"),
    "wrong type": ("requests: 100", "requests: many", "w.yaml:6: traffic.requests: 'many' is not a whole number"),
    "negative rate": ("rate: 8", "rate: -8", "w.yaml:5: traffic.arrivals.rate: -8 is not above 0"),
    "NaN": ("rate: 8", "rate: .nan", "w.yaml:5: traffic.arrivals.rate: nan is not a finite number"),
    "duplicate key": ("seed: 1", "seed: 1\nseed: 1", "w.yaml:10: seed: the key is already on line 9"),
    "version as a number": ('"0.33"', "0.33", "w.yaml:3: engine.version: 0.33 is a number"),
    "unknown unit": ("seed: 1", "slo: {ttft: 1 parsec}", "w.yaml:9: slo.ttft: unknown unit 'parsec'"),
    "not YAML": ("rate: 8}", "rate: 8", "w.yaml:6: not YAML: "),
    "alias bomb": ("seed: 1\n", f"seed: 1\n{BOMB}", "w.yaml:15: holds more than 50,000 values"),
    "missing trace": (
        "{process: poisson, rate: 8}",
        "{process: trace, path: none.csv}",
        "w.yaml:5: traffic.arrivals.path: no file is called 'none.csv'",
    ),
    "split that does not divide": (
        "seed: 1",
        "deployment: {tensor_parallel: 3}",
        "w.yaml:9: deployment.tensor_parallel: tensor_parallel 3 does not divide the 32 attention heads",
    ),
    "model too large": ("llama-3.1-8b", "llama-3.1-405b", "w.yaml:1: model: llama-3.1-405b does not fit"),
    "nested too deeply": ("seed: 1", "seed: " + 200 * "[" + 200 * "]", "w.yaml:9: not YAML: more than 32 levels deep"),
    "an object": ("seed: 1", "seed: !!python/object:os.x {}", "w.yaml:9: tags are refused"),
    "unicode key": ("seed: 1", "sämling: 1", "w.yaml:9: sämling: unknown key"),
    "key with dots": ("seed: 1", "slo.ttft: 1 s", "w.yaml:9: slo.ttft: unknown key"),
    "number as a key": ("seed: 1", "1: x", "w.yaml:9: 1: unknown key"),
    "nothing as a key": ("seed: 1", "null: x", "w.yaml:9: null: unknown key"),
}


@pytest.fixture
def refused(tmp_path):
    """What the command says of a scenario; it must write nothing and fail with status 2."""

    def stderr_of(*arguments):
        command = [sys.executable, "-m", "sim.cli", "run", *arguments, "--out", "results"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert not (tmp_path / "results").exists()
        assert "\n  cure: " in done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.removeprefix("error: ")

    return stderr_of


@pytest.mark.parametrize("case", CHANGED)
def test_a_broken_file(case, base, refused, tmp_path):
    right, wrong, expected = CHANGED[case]
    assert right in base
    (tmp_path / "w.yaml").write_text(base.replace(right, wrong))
    assert refused("w.yaml").startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "w.yaml: is empty"),
        (b"\x89PNG\r\n\x1a\n\xff", "w.yaml: cannot be read: it is not text in UTF-8"),
        (b"a" * 2**21, "w.yaml: is larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_scenario(content, expected, refused, tmp_path):
    (tmp_path / "w.yaml").write_bytes(content)
    assert refused("w.yaml").startswith(expected)


def test_a_file_that_is_not_there_and_a_folder(refused, tmp_path):
    assert refused("none.yaml").startswith("none.yaml: no such file")
    assert refused(str(tmp_path)).startswith(f"{tmp_path}: is a folder")


@pytest.mark.parametrize("good_rows", [1, 5000])
def test_an_unreadable_trace_line(good_rows, refused, tmp_path):
    (tmp_path / "w.yaml").write_text(TRACED)
    (tmp_path / "t.csv").write_text(HEADER + good_rows * ROW + ROW.replace("374", "many"))
    assert f"t.csv:{good_rows + 2}: ContextTokens: 'many' is no number" in refused("w.yaml")


@pytest.mark.parametrize("content", ["", HEADER])
def test_a_trace_without_requests(content, refused, tmp_path):
    (tmp_path / "w.yaml").write_text(TRACED)
    (tmp_path / "t.csv").write_text(content)
    assert "t.csv: " in refused("w.yaml")


def test_a_wrong_setting_names_its_flag(base, refused, tmp_path):
    (tmp_path / "w.yaml").write_text(base)
    assert refused("w.yaml", "--set", "engine.max_num_seqs=-1").startswith("--set: engine.max_num_seqs: -1 is not")


def test_several_errors_come_in_the_files_order(base, refused, tmp_path):
    """What the reading, the types and the comparison of keys find: all at once, by line."""
    text = base.replace("h100-sxm", "h100-smx").replace("poisson, rate: 8", "gamma, rate: 8")
    (tmp_path / "w.yaml").write_text(text.replace("output_tokens: 64", "output_tokens: 0") + "metrics: x\nsed: 1\n")
    places = [line.partition(" ")[0] for line in refused("w.yaml").splitlines() if line.startswith("w.yaml")]
    assert places == [f"w.yaml:{line}:" for line in (2, 5, 8, 10, 11)]
