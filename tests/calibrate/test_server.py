"""Host overheads fitted so that simulated clients see what others saw."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from calibrate.cli import app
from calibrate.server import FITTED, fit_server, run_of, runs_of, with_overheads
from sim.api import run
from sim.bench.result import BenchResult
from sim.errors import RidgelineError
from sim.hardware import HostOverheads, load_profile, save_profile

TRUE = HostOverheads(
    step_s=6e-3, sequence_s=60e-6, layer_gap_s=10e-6, prefill_layer_s=60e-6, request_latency_s=15e-3,
    request_serial_s=3e-3, source="made up",
)  # fmt: skip
WORKLOAD = """
model: llama-3.1-8b
hardware: h100-sxm
engine: {name: vllm, version: "0.33"}
traffic:
  arrivals: {process: closed, concurrency: 8}
  requests: 100
  prompt_tokens: {distribution: uniform, low: 200, high: 400}
  output_tokens: {distribution: uniform, low: 20, high: 40}
"""


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD)
    return str(path)


@pytest.fixture
def results(tmp_path, workload):
    """Files of vllm bench, of a host whose overheads are TRUE."""
    profile = tmp_path / "true.yaml"
    save_profile(with_overheads(load_profile("h100-sxm"), "vllm", TRUE, "2026-01-01"), profile)
    files = []
    for name, arrivals in {
        "c1": {"process": "closed", "concurrency": 1},
        "c16": {"process": "closed", "concurrency": 16},
        "r8": {"process": "vllm-bench", "rate": 8.0},
    }.items():
        overrides = {"hardware": str(profile), "traffic.arrivals": arrivals, "traffic.requests": 80}
        folder = tmp_path / name
        folder.mkdir()
        files += run(workload, overrides=overrides, streams=True).export("vllm-bench", folder)
    return files


def test_overheads_of_another_host_are_found_within_their_uncertainty(results, workload):
    fit = fit_server(runs_of(results), workload, load_profile("h100-sxm"))
    assert fit.error(fit.before) > 0.05
    assert fit.error(fit.after) < 0.01
    for name in FITTED:
        ratio = getattr(fit.overheads, name) / getattr(TRUE, name)
        assert 1 / fit.uncertainty[name] ** 3 < ratio < fit.uncertainty[name] ** 3, name
    assert fit.uncertainty["request_latency_s"] < 2


def test_the_command_writes_a_profile_that_is_then_simulated(results, workload, tmp_path):
    out = tmp_path / "fitted.yaml"
    arguments = ["server", *map(str, results[:1]), "--workload", workload, "--base", "h100-sxm", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "after" in done.output
    profile = load_profile(str(out))
    assert profile.host.calibrated
    assert profile.host.overheads["vllm"].source.startswith("fitted by calibrate server")
    measured = json.loads(results[0].read_text())
    overrides = {"hardware": str(out), "traffic.requests": 80, "traffic.arrivals.concurrency": 1}
    summary = run(workload, overrides=overrides).summary
    assert summary["ttft_s"]["mean"] * 1000 == pytest.approx(measured["mean_ttft_ms"], rel=0.03)
    said = [entry for entry in summary["assumed"] if entry["what"] == "host overheads"]
    assert "calibrate server" in said[0]["why"]


def test_overheads_belong_to_one_engine_and_mean_this_very_host():
    base = load_profile("h100-sxm")
    slow = replace(base, host=replace(base.host, slowdown=2.0))
    profile = with_overheads(slow, "vllm", TRUE, "2026-01-01")
    assert profile.host.overheads["vllm"].step_s == pytest.approx(TRUE.step_s / 2)
    assert set(with_overheads(profile, "sglang", TRUE, "").host.overheads) == {"vllm", "sglang"}


METRICS = {"ttft_s": {"p50": 0.2}, "tpot_s": {"mean": 0.01, "p50": 0.02}}


@pytest.mark.parametrize(
    ("tool", "settings", "process"),
    [
        ("vllm", {"request_rate": "inf", "max_concurrency": 8}, {"process": "closed", "concurrency": 8}),
        ("vllm", {"request_rate": "inf", "max_concurrency": None}, {"process": "burst"}),
        (
            "vllm",
            {"request_rate": 4.0, "burstiness": 2.0, "max_concurrency": 9},
            {"process": "vllm-bench", "rate": 4.0, "burstiness": 2.0, "max_concurrency": 9},
        ),
        ("sglang", {"request_rate": float("inf"), "max_concurrency": 32}, {"process": "closed", "concurrency": 32}),
        ("sglang", {"request_rate": 3.0}, {"process": "sglang-bench", "rate": 3.0}),
        ("guidellm", {"type_": "constant", "rate": 10.0}, {"process": "constant", "rate": 10.0}),
        ("guidellm", {"type_": "concurrent", "streams": 4}, {"process": "closed", "concurrency": 4}),
        ("inference-perf", {"requested_rate": 5.0}, {"process": "poisson", "rate": 5.0}),
        ("aiperf", {"concurrency": 7}, {"process": "closed", "concurrency": 7}),
    ],
)
def test_what_is_simulated_for_a_result(tmp_path, tool, settings, process):
    found = run_of(tmp_path / "r.json", BenchResult(tool=tool, settings=settings, completed=50, metrics=METRICS))
    assert found.overrides == {"traffic.arrivals": process, "traffic.requests": 50}
    assert [(seen.metric, seen.statistic, seen.measured) for seen in found.observations] == [
        ("ttft_s", "p50", 0.2),
        ("tpot_s", "mean", 0.01),
    ]


@pytest.mark.parametrize(
    "result",
    [
        BenchResult(tool="vllm", completed=5, settings={"request_rate": 1.0}),
        BenchResult(tool="vllm", settings={"request_rate": 1.0}, metrics=METRICS),
        BenchResult(tool="guidellm", completed=5, metrics=METRICS),
    ],
)
def test_results_that_say_too_little_are_refused(tmp_path, result):
    with pytest.raises(RidgelineError, match="cure: give files of runs"):
        run_of(tmp_path / "r.json", result)
