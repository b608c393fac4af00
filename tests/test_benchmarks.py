"""The benchmark runs every load and prints what it should; how fast is not asked here."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def bench(repo):
    """Runs the script and returns what it printed."""

    def run(*arguments):
        command = [sys.executable, str(repo / "benchmarks/run.py"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_every_load_at_two_sizes(repo, bench, tmp_path):
    """Six loads, 20 and 40 requests; the trace has 60. All but the first size tell how time per request grew."""
    trace, figures = repo / "workloads/data/mooncake_sample.jsonl", tmp_path / "figures.json"
    arguments = ("--requests", 20, 40, "--repeat", 1, "--trace", trace, "--json", figures, "--markdown")
    printed = bench(*arguments)
    written = json.loads(figures.read_text())
    loads = ["chat", "prefix", "mooncake", "replicas", "long", "tight"]
    assert [(row["load"], row["requests"]) for row in written["rows"]] == [
        (load, n) for load in loads for n in (20, 40)
    ]
    for row in written["rows"]:
        assert row["requests_per_cpu_s"] == pytest.approx(row["requests"] / row["cpu_s"])
        assert row["output_tokens_per_cpu_s"] == pytest.approx(row["output_tokens"] / row["cpu_s"])
        assert row["output_tokens"] > row["requests"]
        assert 20 < row["peak_mb"] < 2000
        assert (row["growth"] is None) == (row["requests"] == 20)
        assert f"| {row['load']} | {row['requests']} | {row['requests_per_cpu_s']:,.0f} |" in printed
    for key in ("machine", "python", "date", "command"):
        assert f"{key}: {written[key]}" in printed


def test_a_tenth_of_the_tight_load_is_preempted(bench, tmp_path):
    figures = tmp_path / "figures.json"
    printed = bench("tight", "--requests", 10_000, "--repeat", 1, "--json", figures)
    (row,) = json.loads(figures.read_text())["rows"]
    assert row["preempted_share"] == pytest.approx(0.1, abs=0.03)
    assert row["verdict"] == "stable"
    assert f"preempted {row['preempted_share']:.1%}" in printed


def test_ratio_is_of_the_prototype_where_it_is_there(shared, bench, tmp_path):
    """Of two pairs of neighbours, the middle of the two ratios."""
    figures = tmp_path / "figures.json"
    bench("chat", "--requests", 200, "--repeat", 2, "--json", figures)
    (row,) = json.loads(figures.read_text())["rows"]
    pairs = zip(row["runs_us_per_request"], row["runs_prototype_us_per_request"], strict=True)
    assert row["times_prototype"] == pytest.approx(sum(ours / its for ours, its in pairs) / 2)
    assert (shared / "tools/prototype_speed.py").is_file()


def test_without_the_trace_its_load_is_skipped_and_says_so(bench, tmp_path):
    printed = bench("mooncake", "chat", "--requests", 5, "--repeat", 1, "--trace", tmp_path / "none.jsonl")
    assert f"mooncake: skipped, there is no trace at {tmp_path / 'none.jsonl'}: give it as --trace" in printed
    assert "chat             5 requests: requests per CPU s" in printed


def test_figures_replace_the_old_ones_in_the_readme(repo, bench, tmp_path):
    """What stands around the marks stays; the second table replaces the first."""
    readme = tmp_path / "README.md"
    readme.write_text((repo / "benchmarks/README.md").read_text())
    for requests in (5, 7):
        bench("chat", "--requests", requests, "--repeat", 1, "--markdown", readme)
    text = readme.read_text()
    assert "| chat | 7 |" in text
    assert "| chat | 5 |" not in text
    assert text.startswith("# Benchmarks")
    assert text.count("end of figures") == 1
    assert text.split("<!-- end")[1] == (repo / "benchmarks/README.md").read_text().split("<!-- end")[1]


def test_a_load_that_is_not_there(repo):
    command = [sys.executable, str(repo / "benchmarks/run.py"), "chatt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no load 'chatt': there are chat, prefix, mooncake, replicas, long, tight" in done.stderr
