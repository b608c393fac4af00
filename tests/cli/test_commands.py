"""The commands as a user types them: what goes to stdout, what to stderr, and the exit status."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

SUMMARY_KEYS = {
    "requests", "duration_s", "throughput", "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "slo", "preemptions", "kv",
    "bound", "verdict", "assumed", "seed", "engine", "hardware", "model",
}  # fmt: skip
LATENCY_KEYS = {"mean", "p50", "p90", "p95", "p99", "max"}


def command(*arguments, cwd=None, check=True):
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli", *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def test_help_lists_the_commands():
    text = command("--help").stdout
    assert all(name in text for name in ("run", "sweep", "models", "hardware", "init", "schema"))


def test_run_json_is_one_object_with_the_designs_keys(repo):
    done = command("run", repo / "workloads/chat.yaml", "--set", "traffic.requests=50", "--json")
    summary = json.loads(done.stdout)
    assert set(summary) >= SUMMARY_KEYS
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert set(summary[name]) == LATENCY_KEYS
    assert set(summary["requests"]) >= {"submitted", "completed", "rejected", "failed", "unfinished"}
    assert set(summary["throughput"]) >= {"requests_per_s", "output_tokens_per_s", "total_tokens_per_s"}
    assert set(summary["slo"]) >= {"attainment", "goodput_requests_per_s"}
    assert set(summary["kv"]) >= {"capacity_tokens", "peak_utilization", "prefix_hit_rate"}
    assert set(summary["bound"]) == {"compute", "memory", "communication", "host", "idle"}
    assert sum(summary["bound"].values()) == pytest.approx(1)
    assert summary["requests"]["completed"] == 50
    assert summary["verdict"] in {"stable", "overloaded"}
    assert done.stderr == ""


def test_undefined_figures_are_null(repo):
    done = command("run", repo / "workloads/lessons/roofline.yaml", "--set", "traffic.output_tokens=1", "--json")
    summary = json.loads(done.stdout)
    assert set(summary["tpot_s"].values()) == {None}
    assert summary["slo"]["attainment"] is None
    assert summary["kv"]["capacity_tokens"] is None


def test_run_prints_for_people(repo):
    text = command("run", repo / "workloads/chat.yaml", "--set", "traffic.requests=50").stdout
    assert all(word in text for word in ("TTFT", "TPOT", "llama-3.1-8b", "h100-sxm", "assumed", "0.33"))


def test_seed_changes_the_run_and_is_reported(repo):
    runs = [
        json.loads(
            command(
                "run", repo / "workloads/chat.yaml", "--set", "traffic.requests=50", "--seed", seed, "--json"
            ).stdout
        )
        for seed in (0, 0, 5)
    ]
    assert runs[0] == runs[1]
    assert runs[2]["seed"] == 5
    assert runs[2]["ttft_s"] != runs[0]["ttft_s"]


def test_out_writes_everything(repo, tmp_path):
    out = tmp_path / "results"
    command("run", repo / "workloads/chat.yaml", "--set", "traffic.requests=50", "--out", out, "--trace")
    assert sorted(path.name for path in out.iterdir()) == [
        "report.html", "requests.parquet", "steps.parquet", "summary.json", "trace.json.gz",
    ]  # fmt: skip
    assert list(pd.read_parquet(out / "steps.parquet")) == [
        "replica", "start_s", "duration_s", "prefill_tokens", "decode_sequences", "output_tokens", "context_tokens",
        "running", "waiting", "kv_blocks_used", "preemptions", "bound", "compute_s", "memory_s", "communication_s",
        "host_s", "gap_s", "streaming",
    ]  # fmt: skip
    requests = pd.read_parquet(out / "requests.parquet")
    assert {
        "request_id", "class", "session_id", "replica", "arrival_s", "received_s", "scheduled_s", "first_token_s",
        "finish_s", "prompt_tokens", "cached_tokens", "output_tokens", "preemptions", "status", "ttft_s", "tpot_s",
        "itl_max_s", "e2e_s", "queue_s",
    } <= set(requests)  # fmt: skip
    assert len(requests) == 50
    json.loads(gzip.decompress((out / "trace.json.gz").read_bytes()))
    json.loads((out / "summary.json").read_text())


def test_trace_without_out_is_an_error(repo):
    done = command("run", repo / "workloads/chat.yaml", "--trace", check=False)
    assert done.returncode == 2
    assert "--out" in done.stderr


def test_ctrl_c_reports_what_was_simulated(repo):
    """An interrupted run prints a partial summary and exits with 130."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sim.cli",
            "run",
            str(repo / "workloads/chat.yaml"),
            "--set",
            "traffic.requests=3000000",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    time.sleep(15)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=150)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["partial"] is True
    assert summary["requests"]["completed"] > 0
    assert "interrupted" in err


def test_a_broken_file_exits_2_and_writes_nothing(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text("model: llama-3.1-8b\nhardware: h100-sxm\ntraffic:\n  arivals: {process: poisson, rate: 8}\n")
    done = command("run", path, "--out", tmp_path / "results", check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "w.yaml:4: traffic.arivals:" in done.stderr
    assert "arrivals" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model=llama-3.1-70b"], ["model", "GiB", "tensor_parallel: 2"]),
        (["model=llama-3.1-405b"], ["model", "GiB", "tensor_parallel: 8, pipeline_parallel: 2"]),
        (["model=llama-3.1-405b", "hardware=l40s"], ["model", "GiB", "weight_dtype"]),
        (["deployment.tensor_parallel=3"], ["tensor_parallel", "32", "1, 2, 4, 8"]),
        (["model=nonesuch"], ["model", "nonesuch"]),
        (["hardware=h100-smx"], ["hardware", "h100-sxm"]),
        (["engine.max_model_len=100000000"], ["max_model_len"]),
        (["engine.version='0.5'"], ["0.5", "0.6 or later"]),
    ],
    ids=[
        "too-large",
        "far-too-large",
        "too-large-for-any",
        "tp-does-not-divide",
        "no-model",
        "no-hardware",
        "too-long",
        "too-old",
    ],
)
def test_what_cannot_be_is_refused_with_a_cure(repo, tmp_path, changes, words):
    path = tmp_path / "w.yaml"
    path.write_text((repo / "workloads/chat.yaml").read_text())
    settings = [part for change in changes for part in ("--set", change)]
    done = command("run", path, *settings, check=False)
    assert done.returncode == 2
    assert "cure:" in done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_sweep_writes_a_table_and_prints_json(repo, tmp_path):
    out = tmp_path / "r.parquet"
    grid = ["--grid", "traffic.prompt_tokens=100,200", "--grid", "traffic.output_tokens=1,2"]
    done = command("sweep", repo / "workloads/lessons/roofline.yaml", *grid, "--out", out, "--json")
    assert len(json.loads(done.stdout)) == 4
    table = pd.read_parquet(out)
    assert table["traffic.prompt_tokens"].tolist() == [100, 100, 200, 200]


@pytest.mark.parametrize("example", ["llama_cpp", "sarathi", "sglang", "trtllm", "vllm_v0"])
def test_the_comparison_an_example_suggests_runs_as_written(example, repo, tmp_path):
    text = (repo / f"workloads/engines/{example}.yaml").read_text()
    suggested = re.search(r"^# .*\bsim (sweep .*)$", text, re.MULTILINE)[1].split()
    suggested = [str(repo / word) if word.startswith("workloads/") else word for word in suggested]
    done = command(*suggested, "--set", "traffic.requests=5", "--json", cwd=tmp_path)
    assert len(json.loads(done.stdout)) > 1
    assert list(tmp_path.glob("*.parquet"))


def test_models_and_hardware_json():
    model = json.loads(command("models", "llama-3.1-8b", "--json").stdout)
    assert model["parameters"] == 8_030_261_248
    assert model["kv"]["growing_bytes_per_token"] == 131_072
    device = json.loads(command("hardware", "h100-sxm", "--json").stdout)
    assert device["ridge_flops_per_byte"]["bf16"] == pytest.approx(295, abs=0.5)
    assert "llama-3.1-8b" in json.loads(command("models", "--json").stdout)
    assert len(json.loads(command("hardware", "--json").stdout)) == 50


def test_models_and_hardware_for_people():
    assert "8.03" in command("models", "llama-3.1-8b").stdout
    assert "989" in command("hardware", "h100-sxm").stdout
    for name in ("models", "hardware"):
        done = command(name, "nonesuch", check=False)
        assert done.returncode == 2
        assert "cure" in done.stderr


def test_init_writes_a_scenario_that_runs_and_never_overwrites(tmp_path):
    command("init", tmp_path)
    summary = json.loads(command("run", "scenario.yaml", "--set", "traffic.requests=20", "--json", cwd=tmp_path).stdout)
    assert summary["requests"]["completed"] == 20
    assert command("init", tmp_path, check=False).returncode == 2


def test_schema_is_json():
    assert "properties" in json.loads(command("schema").stdout)
