"""A linear model out of an engine's step log, and the server's time between engine and client."""

import json

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from calibrate.cli import app
from calibrate.server_time import server_time
from calibrate.steps import COEFFICIENTS, StepSample, calibrate_steps, fit_steps, samples_of
from sim.errors import RidgelineError
from sim.fleet.step_log import read_step_log, token_times
from sim.work import PrefillChunk, StepWork

TRUE = {
    "prefill_step_s": 2e-3,
    "prefill_s_per_token": 1e-4,
    "step_s": 1e-2,
    "step_s_per_sequence": 5e-4,
    "step_s_per_context_token": 2e-6,
}
CONFIG = {
    "max_num_batched_tokens": 512, "max_num_seqs": 32, "num_gpu_blocks": 2730, "block_size": 32,
    "max_model_len": 2048, "policy": "fcfs", "enable_prefix_caching": False, "long_prefill_token_threshold": 0,
    "reserve_full_isl": True, "watermark": 0.0, "enable_chunked_prefill": True, "async": False, "v2_runner": False,
}  # fmt: skip


def seconds(work):
    decodes = work.decode_sequences
    return (
        TRUE["prefill_step_s"] * bool(work.chunks)
        + TRUE["prefill_s_per_token"] * work.prefill_tokens
        + TRUE["step_s"] * bool(decodes)
        + TRUE["step_s_per_sequence"] * decodes
        + TRUE["step_s_per_context_token"] * work.decode_context_tokens
    )


def works(count, seed=1):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        decodes = int(generator.integers(0, 30))
        chunks = (PrefillChunk(int(generator.integers(1, 512)), 0),) if generator.random() < 0.4 or not decodes else ()
        yield StepWork(chunks, decodes, decodes * int(generator.integers(20, 2000)))


def test_a_model_without_noise_is_found_again():
    fit = fit_steps([StepSample("a", work, seconds(work)) for work in works(200)])
    for name in COEFFICIENTS:
        assert getattr(fit.cost, name) == pytest.approx(TRUE[name], rel=1e-3), name
    assert fit.error < 1e-4
    assert fit.runs == ()


def test_noise_and_outliers_move_it_little_and_the_errors_say_how_much():
    generator = np.random.default_rng(3)
    samples = [StepSample("a", work, seconds(work) * generator.lognormal(0, 0.05)) for work in works(600)]
    samples += [StepSample("a", work, seconds(work) * 20) for work in works(6, seed=9)]
    fit = fit_steps(samples)
    assert fit.cost.step_s == pytest.approx(TRUE["step_s"], rel=0.1)
    assert fit.cost.prefill_s_per_token == pytest.approx(TRUE["prefill_s_per_token"], rel=0.05)
    assert fit.error == pytest.approx(0.05 * 0.6745, rel=0.2)
    assert abs(fit.cost.step_s - TRUE["step_s"]) < 4 * fit.standard_errors["step_s"]


def test_a_host_that_drifts_between_runs_is_taken_out():
    """Three runs, the second on a host half as fast: the median run's speed is 1, the slow one's 2."""
    speeds = {"a": 1.0, "b": 2.0, "c": 1.0}
    samples = [
        StepSample(run, work, seconds(work) * speed)
        for index, (run, speed) in enumerate(speeds.items())
        for work in works(150, seed=index)
    ]
    fit = fit_steps(samples)
    assert fit.speeds == pytest.approx(speeds, rel=1e-3)
    assert fit.cost.step_s == pytest.approx(TRUE["step_s"], rel=1e-2)
    by_run = {run.run: run for run in fit.runs}
    assert by_run["b"].speed == pytest.approx(2.0, rel=1e-2)
    assert by_run["b"].error == pytest.approx(0.5, rel=1e-2)
    assert by_run["b"].error_at_speed < 1e-2


def test_too_few_steps_are_refused():
    with pytest.raises(RidgelineError, match="too few"):
        fit_steps([StepSample("a", work, seconds(work)) for work in works(10)])


def step(start_s, took_s, scheduled, finished=()):
    return {
        "t0": start_s, "t1": start_s, "t2": start_s + took_s, "scheduled": scheduled, "preempted": [],
        "finished": list(finished), "running": 1, "waiting": 0, "free_blocks": 2700,
    }  # fmt: skip


def write_log(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"config": CONFIG}, *lines)))
    return path


def small_log(tmp_path):
    """Request r-0 (10 tokens, 2 out) alone, a pause, then r-1: prefill and decode, each 1 s, 1 ms apart."""
    return write_log(
        tmp_path / "log.jsonl",
        {"arrive": "r-0", "t": 0.5, "prompt": 10, "output": 2},
        step(1.0, 1.0, [["r-0", 10, 0]]),
        step(2.001, 1.0, [["r-0", 1, 10]], ["r-0"]),
        {"arrive": "r-1", "t": 6.0, "prompt": 4, "output": 1},
        step(6.0, 0.5, [["r-1", 4, 0]], ["r-1"]),
    )


def test_a_step_lasts_to_the_next_one_unless_the_engine_idles(tmp_path):
    samples = samples_of(read_step_log(small_log(tmp_path)))
    assert [sample.seconds for sample in samples] == pytest.approx([1.001, 1.0, 0.5])
    assert [sample.run for sample in samples] == ["r", "r", "r"]
    assert [sample.work for sample in samples] == [
        StepWork((PrefillChunk(10, 0),), 0, 0),
        StepWork((), 1, 11),
        StepWork((PrefillChunk(4, 0),), 0, 0),
    ]


def client(tmp_path, **changes):
    """Sent at 0.4 and 5.75 on the clock: in after 0.1 and 0.25 s; tokens out 0.05 s after their steps' ends."""
    data = {
        "name": "r", "t0": 0.25, "start_times_s": [0.15, 5.5], "ttfts_s": [1.65, 0.8], "end_times_s": [2.801, 6.3],
    }  # fmt: skip
    path = tmp_path / "client.json"
    path.write_text(json.dumps(data | changes))
    return path


def test_the_servers_own_time_by_hand(tmp_path):
    log = read_step_log(small_log(tmp_path))
    found = server_time(log, list(token_times(log)), [client(tmp_path)])
    assert found["requests"] == 2
    assert found["ingress_s"]["mean"] == pytest.approx(0.175)
    assert found["idle_ingress_s"]["mean"] == pytest.approx(0.175)
    assert found["first_token_s"]["mean"] == pytest.approx(0.05)
    assert found["last_token_s"]["mean"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"name": "x"}, "no request x-0"), ({"ttfts_s": [1.0]}, "different lengths"), ({"t0": "soon"}, "cannot be read")],
)
def test_a_client_file_that_does_not_fit_is_refused(tmp_path, changes, said):
    log = read_step_log(small_log(tmp_path))
    with pytest.raises(RidgelineError, match=said):
        server_time(log, list(token_times(log)), [client(tmp_path, **changes)])


def test_the_command_writes_a_cost_that_a_scenario_takes(tmp_path):
    lines, now_s = [], 0.0
    for index, work in enumerate(works(80)):
        prompt = work.prefill_tokens or 1
        lines.append({"arrive": f"r-{index}", "t": now_s, "prompt": prompt, "output": 1})
        took_s = TRUE["prefill_step_s"] + TRUE["prefill_s_per_token"] * prompt
        lines.append(step(now_s, took_s, [[f"r-{index}", prompt, 0]], [f"r-{index}"]))
        now_s += took_s + 1.0
    out = tmp_path / "fit.yaml"
    done = CliRunner().invoke(app, ["steps", str(write_log(tmp_path / "log.jsonl", *lines)), "--out", str(out)])
    assert done.exit_code == 0, done.output
    from sim.api import run

    document = yaml.safe_load(out.read_text())
    assert document["cost"]["prefill_s_per_token"] == pytest.approx(TRUE["prefill_s_per_token"], rel=1e-2)
    overrides = {"cost": document["cost"], "traffic.requests": 5}
    assert run("chat", overrides=overrides).summary["requests"]["completed"] == 5


def test_a_live_servers_log(shared):
    """Its host drifted by up to a factor of two between runs; with that out, runs left out are predicted to 10 %."""
    folder = shared / "data/measured/vllm_cpu"
    fit, server = calibrate_steps(folder / "steps_A.jsonl", [folder / "A_open50.json", folder / "A_closed1.json"])
    assert fit.steps > 8000
    assert fit.error < 0.1
    errors = sorted(run.error_at_speed for run in fit.runs)
    assert len(errors) == 8
    assert np.median(errors) < 0.08
    assert 1e-3 < server["idle_ingress_s"]["p50"] < 1e-2
    assert 1e-3 < server["first_token_s"]["p50"] < 1e-2
