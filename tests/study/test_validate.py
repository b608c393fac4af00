"""Measured cases and what is said of them; every expected figure is worked out in the docstrings."""

import datetime
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app, main
from sim.errors import RidgelineError, ScenarioError, TraceError
from sim.study.validation.cases import Case, chosen, read_cases
from sim.study.validation.errors import Compared, by_metric, statistics
from sim.study.validation.naming import apart
from sim.study.validation.recipes import recipe
from sim.study.validation.releases import release_of
from sim.study.validation.replay import replay
from sim.study.validation.rules import model_of, scenario_of, spreads_clients
from sim.study.validation.running import _simulated, run_case
from sim.study.validation.validate import validate

HEADER = "case_id,set,gpu,engine,model,load,prompt_tokens,output_tokens,concurrency,num_requests"
ROW = "a-1,a,h100-sxm,vllm,llama-3.1-8b,closed,100,11,1,4"
CASE = Case(
    file="cases.csv",
    line=2,
    case_id="a-1",
    set="a",
    gpu="h100-sxm",
    engine="vllm",
    model="llama-3.1-8b",
    load="closed",
    prompt_tokens=100,
    output_tokens=11,
    concurrency=1,
    num_requests=4,
)
LINEAR = {"model": "linear", "prefill_step_s": 0.05, "prefill_s_per_token": 0.001, "step_s": 0.02}
SYNCHRONOUS = {"async_scheduling": False, "prefix_caching": False}


def write(folder, *lines, header=HEADER):
    path = folder / "cases.csv"
    path.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return path


def linear(case, **traffic):
    """The case's scenario in a world whose steps have closed forms."""
    found = scenario_of(case)
    found["traffic"] |= traffic
    return {**found, "engine": {**found["engine"], **SYNCHRONOUS}, "cost": LINEAR}


def test_a_lone_client_sees_the_closed_form():
    """Prefill 0.05 + 100 x 0.001 = 0.15 s; each of the 10 later tokens 0.02 s; e2e 0.35 s; 11 tokens in 0.35 s."""
    found = _simulated(linear(CASE))
    assert found["ttft_mean"] == pytest.approx(0.15)
    assert found["tpot_p99"] == pytest.approx(0.02)
    assert found["e2e_p50"] == pytest.approx(0.35)
    assert found["output_tokens_per_s"] == pytest.approx(11 / 0.35)


def test_a_burst_is_served_in_one_prefill():
    """4 prompts of 100 tokens fit one step: all first tokens come at 0.05 + 400 x 0.001 = 0.45 s."""
    found = _simulated(linear(replace(CASE, load="burst", concurrency=None)))
    assert found["ttft_mean"] == found["ttft_p99"] == pytest.approx(0.45)


def test_a_row_that_states_both_a_rate_and_clients_waits_for_a_client():
    case = replace(CASE, load="open", request_rate=5.0, arrival="constant", concurrency=2)
    assert scenario_of(case)["traffic"]["arrivals"] == {"process": "constant", "rate": 5.0, "max_concurrency": 2}


def test_lengths_are_uniform_integers_up_to_the_stated_one():
    """0.8 x 1,024 = 819.2: lengths go from 819 to 1,024."""
    traffic = scenario_of(replace(CASE, prompt_tokens=1024, length_ratio=0.8))["traffic"]
    assert traffic["prompt_tokens"] == {"distribution": "uniform", "low": 819, "high": 1024}


def test_a_shared_prefix_is_part_of_the_stated_prompt():
    case = replace(CASE, shared_prefix_tokens=40, prefix_groups=3, prompts_per_group=5)
    traffic = scenario_of(case)["traffic"]
    assert traffic["prompt_tokens"] == 60
    assert traffic["shared_prefix"] == {"tokens": 40, "groups": 3, "prompts_per_group": 5}


def test_a_row_goes_before_the_harness_and_the_harness_before_the_engine():
    case = replace(CASE, set="p3", model="llama-3.1-70b", weight_dtype="fp8", concurrency=16)
    assert scenario_of(case)["engine"]["max_batched_tokens"] == 8192
    assert scenario_of(replace(case, max_batched_tokens=4096))["engine"]["max_batched_tokens"] == 4096
    assert "max_batched_tokens" not in scenario_of(CASE)["engine"]


def test_prompts_wait_to_be_batched_where_the_harness_says_so():
    case = replace(CASE, set="p3", engine="trtllm", model="llama-3.1-70b", weight_dtype="fp8", tp=4)
    waiting = replace(case, prompt_tokens=1024, output_tokens=1024)
    assert recipe(waiting)["batch_wait_timeout_iters"] == 20
    assert "batch_wait_timeout_iters" not in recipe(replace(waiting, tp=8))
    assert "batch_wait_timeout_iters" not in recipe(replace(waiting, output_tokens=8192))


def test_weights_are_replaced_only_where_no_checkpoint_of_that_dtype_is_known():
    assert model_of(replace(CASE, model="gpt-oss-120b", weight_dtype="mxfp4")) == ("gpt-oss-120b", None)
    assert model_of(replace(CASE, model="qwen3-235b-a22b", weight_dtype="fp8")) == ("qwen3-235b-a22b-fp8", None)
    assert model_of(replace(CASE, weight_dtype="fp8")) == ("llama-3.1-8b", "fp8")


def test_clients_start_one_by_one_for_one_tool_alone():
    case = replace(CASE, set="p2", concurrency=8)
    assert spreads_clients(case)
    assert not spreads_clients(replace(case, set="p3"))
    assert scenario_of(case, rampup_s=2.5)["traffic"]["arrivals"] == {
        "process": "guidellm",
        "profile": "concurrent",
        "streams": 8,
        "rampup": 2.5,
    }


@pytest.mark.parametrize(
    ("day", "version"), [("2025-10-01", "0.10.0"), ("2025-10-02", "0.11.0"), ("2024-01-01", None), (None, None)]
)
def test_the_day_says_which_release_ran(day, version):
    assert release_of("vllm", None if day is None else datetime.date.fromisoformat(day)) == version


def test_statistics_by_hand():
    """Errors -0.2, 0.1, 0.1, 0.4: magnitudes sorted 0.1, 0.1, 0.2, 0.4; mean 0.2, median 0.15, p90 at rank 2.7 of 3:
    0.2 + 0.7 x 0.2 = 0.34; the signed median is 0.1.
    """
    found = statistics([-0.2, 0.1, 0.1, 0.4])
    assert found == pytest.approx({"n": 4, "mape": 0.2, "median_ape": 0.15, "p90_ape": 0.34, "bias": 0.1})


def test_only_what_a_row_measured_is_compared():
    rows = [Compared(replace(CASE, measured={"ttft_mean": 2.0}), {"ttft_mean": 1.0, "tpot_mean": 9.0})]
    assert by_metric(rows) == {"ttft_mean": {"n": 1, "mape": 0.5, "median_ape": 0.5, "p90_ape": 0.5, "bias": -0.5}}


def test_a_table_is_run_and_compared(tmp_path):
    path = write(tmp_path, f"{ROW},1000,10", ROW.replace("a-1", "a-2").replace("llama-3.1-8b", "no-such") + ",1,1",
                 header=f"{HEADER},ttft_mean_ms,tpot_mean_ms")  # fmt: skip
    result = CliRunner().invoke(app, ["validate", str(path), "--json", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["metrics"]["tpot_mean"]["n"] == 1
    assert found["by"]["gpu"]["h100-sxm"]["ttft_mean"] == found["metrics"]["ttft_mean"]
    assert [entry["case_id"] for entry in found["skipped"]] == ["a-2"]
    assert "no-such" in found["skipped"][0]["reason"]
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert written == {"predictions.csv", "report.md", "tpot_mean.png", "ttft_mean.png"}


def test_the_error_is_predicted_over_measured(tmp_path):
    found = run_case(CASE)["predicted"]["tpot_mean"]
    path = write(tmp_path, f"{ROW},{1000 * found / 1.25}", header=f"{HEADER},tpot_mean_ms")
    assert sim.validate(path, jobs=1).metrics["tpot_mean"]["bias"] == pytest.approx(0.25)


def test_processes_give_what_one_process_gives(tmp_path):
    rows = [ROW.replace("a-1", f"a-{index}").replace(",1,4", f",{index},40") + ",1" for index in range(1, 11)]
    path = write(tmp_path, *rows, header=f"{HEADER},tpot_mean_ms")
    assert validate(path, jobs=2) == validate(path, jobs=1)


def test_an_interrupted_run_goes_on(tmp_path):
    """The journal holds one finished case, whose figure could come from nowhere else."""
    path = write(tmp_path, f"{ROW},1", header=f"{HEADER},tpot_mean_ms")
    out = tmp_path / "out"
    from sim.study.validation.validate import _fingerprint

    out.mkdir()
    header = {"sweep": _fingerprint(read_cases(path))}
    entry = {"key": "a-1", "row": {"predicted": {"tpot_mean": 0.004}, "seconds": 1.0}}
    (out / "predictions.csv.partial").write_text(f"{json.dumps(header)}\n{json.dumps(entry)}\n")
    assert validate(path, out=out).metrics["tpot_mean"]["bias"] == pytest.approx(3.0)
    assert not (out / "predictions.csv.partial").exists()


@pytest.mark.parametrize(
    ("lines", "header", "place", "says"),
    [
        ([ROW.replace(",100,", ",many,")], HEADER, "2: prompt_tokens", "many"),
        ([ROW.replace("closed", "shut")], HEADER, "2: load", "closed"),
        ([ROW.replace(",1,4", ",,4")], HEADER, "2: concurrency", "is empty"),
        ([ROW, ROW], HEADER, "3: case_id", "line 2"),
        ([ROW + ",9"], HEADER, "2:", "11 cells"),
        ([ROW + ",9"], HEADER + ",tpot_men_ms", "1: tpot_men_ms", "tpot_mean_ms"),
        ([ROW + ",-9"], HEADER + ",tpot_mean_ms", "2: tpot_mean_ms", "positive"),
        ([], HEADER, "cases.csv", "no case"),
        (["a-1"], "case_id", "1: set", "missing"),
    ],
)
def test_a_bad_table_is_refused_with_its_place_and_a_cure(tmp_path, monkeypatch, capsys, lines, header, place, says):
    path = write(tmp_path, *lines, header=header)
    monkeypatch.setattr("sys.argv", ["sim", "validate", str(path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert f"{path}:{place}" in told or place in told
    assert says in told
    assert "cure:" in told


def test_where_chooses_cases():
    cases = [CASE, replace(CASE, case_id="a-2", engine="sglang", tp=2)]
    assert chosen(cases, {"engine": "sglang", "tp": "2"}) == [cases[1]]
    with pytest.raises(RidgelineError, match="choose among engine: sglang, vllm"):
        chosen(cases, {"engine": "trtllm"})
    with pytest.raises(RidgelineError, match="engine"):
        chosen(cases, {"engin": "vllm"})


def launch(count, ratio, *, date, model="deepseek-v3", tpot=0.010, **changes):
    """Rows of one day, all predicted ``ratio`` times the measured TPOT."""
    rows = []
    for index in range(count):
        case = replace(CASE, case_id=f"{date}-{index}", model=model, date=date, concurrency=2 + index, **changes)
        measured = {"tpot_mean": tpot, "ttft_mean": 0.1}
        rows.append(Compared(replace(case, measured=measured), {"tpot_mean": ratio * tpot, "ttft_mean": 0.1}))
    return rows


def named(rows):
    return {group.name: {row.case.case_id for row in group.rows} for group in apart(rows)}


def test_launches_too_fast_for_one_token_a_step_are_named():
    """log2(1.3) = 0.38 is above 0.25, and the same configurations took 1.5 times as long on another day."""
    fast, plain = launch(10, 1.3, date="2026-01-14"), launch(10, 1.0, date="2025-11-02", tpot=0.015)
    assert named([*fast, *plain]) == {"multi-token prediction": {row.case.case_id for row in fast}}
    assert named(fast) == {}
    assert named([*fast[:9], *plain]) == {}
    assert named(launch(10, 1.5, date="2026-01-14")).keys() == {"multi-token prediction"}
    assert named(launch(10, 1.5, date="2026-01-14", model="llama-3.1-8b")) == {}


def test_a_launch_that_compiled_while_it_was_measured_is_named():
    """2 of 10 rows have 10 times the TTFT of the same configuration on a later day, at the same TPOT."""
    cold, warm = launch(10, 1.0, date="2025-11-10"), launch(10, 1.0, date="2026-03-25")
    slow = {"tpot_mean": 0.010, "ttft_mean": 1.0}
    cold[:2] = [Compared(replace(row.case, measured=slow), row.predicted) for row in cold[:2]]
    assert named([*cold, *warm]) == {"cold start": {row.case.case_id for row in cold}}


def test_a_server_that_runs_fewer_than_are_sent_is_named():
    """512 clients wait 5 s for answers that take 11 x 0.010 s, no slower than with 64."""
    few, many = launch(1, 1.0, date="2026-03-27")[0], launch(1, 1.0, date="2025-12-05")[0]
    many = Compared(replace(many.case, concurrency=512, measured={"tpot_mean": 0.01, "ttft_mean": 5.0}), many.predicted)
    turns = {"num_requests": None}
    rows = [Compared(replace(row.case, **turns), row.predicted) for row in (few, many)]
    assert named(rows) == {"capped server": {many.case.case_id}}


def test_prompts_faster_than_the_peak_are_named():
    """8 clients x 30,000 tokens in 0.1 + 10 x 0.01 s: 1.2e6 tokens/s x 2 x 8e9 FLOPs = 19 PFLOP/s on one H100."""
    rows = launch(1, 1.0, date="2026-01-01", model="llama-3.1-8b", prompt_tokens=30_000)
    fast = [Compared(replace(row.case, concurrency=8), row.predicted) for row in rows]
    assert named(fast).keys() == {"cached prompts"}
    short = [Compared(replace(row.case, prompt_tokens=1000), row.predicted) for row in fast]
    assert named(short) == {}


def test_a_device_half_as_fast_with_everything_is_named():
    rows = launch(2, 0.5, date="2026-01-01", model="qwen3-14b")
    rows += launch(2, 0.52, date="2026-01-02", model="qwen3-32b", engine="trtllm")
    assert named(rows).keys() == {"half-speed device"}
    assert named([*rows, *launch(1, 1.0, date="2026-01-03", model="qwen3-14b", engine="sglang")]) == {}


REQUESTS = [
    {"input_toks": 100, "output_toks": 11, "queued_ts": 50.0, "first_token_ts": 50.3, "last_token_ts": 50.7},
    {"input_toks": 200, "output_toks": 6, "queued_ts": 60.0, "first_token_ts": 60.5, "last_token_ts": 60.7},
]
WORLD = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", **SYNCHRONOUS},
    "traffic": {"arrivals": {"process": "burst"}, "requests": 1, "prompt_tokens": 1, "output_tokens": 1},
    "cost": LINEAR,
}


def jsonl(folder, rows):
    path = folder / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_recorded_run_is_replayed(tmp_path):
    """Alone in the engine, TTFT is 0.05 + 0.1 = 0.15 and 0.05 + 0.2 = 0.25 s, 0.2 in the mean; 0.4 was measured.
    TPOT is 0.02 s; measured 0.4 / 10 and 0.2 / 5 s.
    """
    found = replay(jsonl(tmp_path, REQUESTS), WORLD)
    assert found["ttft_s"]["mean"] == pytest.approx({"measured": 0.4, "predicted": 0.2, "error": -0.5})
    assert found["tpot_s"]["p99"] == pytest.approx({"measured": 0.04, "predicted": 0.02, "error": -0.5})
    assert found["e2e_s"]["p50"]["predicted"] == pytest.approx((0.35 + 0.35) / 2)
    assert list(found) == ["ttft_s", "tpot_s", "e2e_s"]
    assert list(found["e2e_s"]) == ["mean", "p50", "p90", "p99"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queued_ts": None}, "queued_ts: is no number"),
        ({"output_toks": 0}, "output_toks: is no whole number"),
        ({"first_token_ts": 10.0}, "not between"),
    ],
)
def test_a_bad_request_is_refused_with_its_line(tmp_path, change, says):
    with pytest.raises(TraceError, match=r"requests.jsonl:2: .*") as refused:
        replay(jsonl(tmp_path, [REQUESTS[0], {**REQUESTS[1], **change}]), WORLD)
    assert says in str(refused.value)


def test_the_projects_own_table_is_complete(repo):
    cases = read_cases(repo / "validation/cases.csv")
    assert len(cases) == 1968
    assert all(case.source and case.measured for case in cases)


def test_the_shared_table_is_the_projects_own(repo, shared):
    """Figures carry over to five digits."""
    theirs, ours = read_cases(shared / "data/measured/cases.csv"), read_cases(repo / "validation/cases.csv")
    for one, other in zip(theirs, ours, strict=True):
        assert one.measured.keys() == other.measured.keys()
        assert np.allclose(list(one.measured.values()), list(other.measured.values()), rtol=6e-5)
        assert scenario_of(one) == scenario_of(other)


@pytest.mark.parametrize(("run", "device"), [("RTX4090", "rtx-4090"), ("RTXPRO6000", "rtx-pro-6000")])
def test_recorded_runs_are_predicted(repo, shared, run, device):
    requests = shared / f"data/measured/replays/llmservingsim_vllm_{run}_Llama-3.1-8B_requests.jsonl"
    found = replay(requests, repo / f"validation/replay-{device}.yaml")
    assert all(abs(figure["error"]) < 0.5 for figures in found.values() for figure in figures.values())


def test_an_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(RidgelineError, match="no such file"):
        validate(tmp_path / "none.csv")
    path = Path(tmp_path / "binary.csv")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="UTF-8"):
        validate(path)
