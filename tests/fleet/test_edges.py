"""Where a run is cut short, serves nothing, or hides its queue."""

import os
import signal

import pytest

import sim
from sim.errors import ScenarioError


def test_ctrl_c_ends_a_run_with_tables_that_agree(repo):
    """The first Ctrl-C lets the event in progress end: what was simulated is there, whole, and marked partial."""
    sent, before = [], signal.getsignal(signal.SIGINT)

    def interrupt(ended, _):
        if not sent:
            sent.append(ended)
            os.kill(os.getpid(), signal.SIGINT)

    result = sim.run(repo / "workloads/chat.yaml", overrides={"traffic.requests": 5000}, progress=interrupt)
    counts = result.summary["requests"]
    assert result.summary["partial"] is True
    assert sent[0] <= counts["completed"] <= sent[0] + 128
    assert counts["completed"] + counts["unfinished"] == counts["submitted"] == len(result.requests)
    gaps = result.steps.streaming.sum() + sum(len(recorder.gaps.gap_s) for recorder in result.run.recorders)
    assert gaps == (result.requests.output_tokens - 1).clip(lower=0).sum()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_client_limit_does_not_hide_an_overload(repo):
    """5 requests per second to one client that needs more than 1 s each: the queue is at the client, and grows."""
    changes = {"traffic.arrivals.max_concurrency": 1, "traffic.requests": 300, "traffic.arrivals.rate": 5}
    result = sim.run(repo / "workloads/chat.yaml", overrides=changes)
    assert result.summary["verdict"] == "overloaded"
    assert result.requests.client_wait_s.iloc[-1] > 60
    assert result.summary["ttft_s"]["max"] < 5


def test_serving_nothing_is_no_stable_fleet(repo):
    changes = {
        "traffic.requests": 30,
        "traffic.prompt_tokens": 500,
        "engine.max_model_len": 400,
        "traffic.output_tokens": 5,
    }
    summary = sim.run(repo / "workloads/chat.yaml", overrides=changes).summary
    assert summary["requests"]["rejected"] == 30
    assert summary["verdict"] == "overloaded"
    assert summary["throughput"]["requests_per_s"] == 0
    assert summary["slo"]["attainment"] == 0


def test_an_unfinished_run_has_a_throughput_of_zero(repo):
    changes = {"measure.drain": False, "traffic.requests": None, "traffic.duration": "0.3 s"}
    summary = sim.run(repo / "workloads/chat.yaml", overrides=changes).summary
    assert summary["requests"]["unfinished"] == summary["requests"]["submitted"] > 0
    assert summary["duration_s"] > 0
    assert summary["throughput"]["output_tokens_per_s"] == 0


@pytest.mark.parametrize("changes", [{"traffic.requests": 50}, {"traffic.requests": None, "traffic.duration": "20 s"}])
def test_a_warm_up_that_leaves_nothing_is_refused(repo, changes):
    warmup = 50 if changes["traffic.requests"] else "30 s"
    with pytest.raises(ScenarioError, match="warmup"):
        sim.run(repo / "workloads/chat.yaml", overrides={**changes, "measure.warmup": warmup})


def test_a_relative_path_in_an_override_is_seen_from_here(repo, tmp_path, monkeypatch):
    """What a user types on a command line is a path from where they stand."""
    (tmp_path / "mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,2\n1,10,2\n")
    monkeypatch.chdir(tmp_path)
    changes = {"traffic.arrivals.path": "mine.csv", "traffic.arrivals.format": "table"}
    assert len(sim.run(repo / "workloads/azure.yaml", overrides=changes).requests) == 2


@pytest.mark.parametrize("name", ["chat", "azure", "mooncake", "lessons/linear"])
def test_examples_run_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sim.run(name, overrides={"traffic.requests": 5} if name != "lessons/linear" else {}).summary["requests"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine.max_model_len": 400}, "no room in max_model_len, 400 tokens"),
        ({"engine.kv_blocks": 30, "engine.max_model_len": 460, "traffic.prompt_tokens": 400}, None),
    ],
)
def test_rejections_say_why_with_the_numbers(repo, changes, words):
    base = {"traffic.requests": 10, "traffic.prompt_tokens": 500, "traffic.output_tokens": 100}
    summary = sim.run(repo / "workloads/chat.yaml", overrides={**base, **changes}).summary
    assert sum(summary["rejections"].values()) == summary["requests"]["rejected"]
    if words:
        assert words in next(iter(summary["rejections"]))
    else:
        assert summary["requests"]["truncated"] == 10
