"""The summary reads tables where they lie: in pieces, as views, and only what it needs."""

from functools import partial

import numpy as np
import pytest

import sim
from sim.results.columns import Table
from sim.results.requests import STATUSES, RequestLog, derive, frame
from sim.results.summary import measured_rows


def test_groups_on_disk_do_not_change_a_summary(repo, monkeypatch):
    """Seven steps a group, with preemptions and two replicas: but for how sums add up, as in one group."""
    overrides = {
        "traffic.requests": 200,
        "deployment.replicas": 2,
        "engine.kv_blocks": 600,
        "engine.max_model_len": 8192,
        "measure.warmup": 20,
    }
    whole = sim.run(repo / "workloads/chat.yaml", overrides=overrides)
    monkeypatch.setattr("sim.results.steps.Table", partial(Table, group_rows=7))
    pieces = sim.run(repo / "workloads/chat.yaml", overrides=overrides)
    assert len(list(pieces.run.steps.table.pieces(()))) > 100
    assert whole.summary["preemptions"] > 0
    for figure in ("itl_s", "bound"):
        assert pieces.summary.pop(figure) == pytest.approx(whole.summary.pop(figure), rel=1e-12, abs=1e-12)
    assert pieces.summary == whole.summary


def test_itl_is_that_of_every_gap(repo):
    """All tokens but the first of each served request, from the step table and the gaps no two requests share."""
    overrides = {"traffic.requests": 200, "engine.kv_blocks": 600, "engine.max_model_len": 8192}
    result = sim.run(repo / "workloads/chat.yaml", overrides=overrides)
    shared = np.repeat(result.steps["gap_s"], result.steps["streaming"])
    gap_s = np.concatenate([shared, *(recorder.gaps.gap_s for recorder in result.run.recorders)])
    assert len(gap_s) == (result.requests.output_tokens - 1).clip(lower=0).sum()
    expected = {"mean": gap_s.mean(), "max": gap_s.max()}
    expected |= {f"p{p}": np.percentile(gap_s, p) for p in (50, 90, 95, 99)}
    assert result.summary["itl_s"] == pytest.approx(expected, rel=1e-12)


def log_at(*arrivals_s):
    log = RequestLog()
    for arrival_s in arrivals_s:
        log.submit(arrival_s, 10, 0)
    return log


def test_columns_are_views_that_keep_the_log_as_it_is():
    """What grew under a view would leave it behind: the log refuses, and grows again when the view is gone."""
    log = log_at(*range(4096))
    columns = log.columns()
    with pytest.raises(BufferError):
        log.submit(1.0, 10, 0)
    log.arrival_s[0] = -5.0
    assert columns["arrival_s"][0] == -5.0
    del columns
    assert log.submit(1.0, 10, 0) == 4096


def test_a_warmup_of_requests_copies_nothing():
    raw = log_at(0.0, 1.0, 2.0, 3.0).columns()
    measured = derive(raw, ("arrival_s", "status"), measured_rows(raw, 2))
    assert list(measured) == ["arrival_s", "status"]
    assert measured["arrival_s"].tolist() == [2.0, 3.0]
    assert np.shares_memory(measured["arrival_s"], raw["arrival_s"])


def test_a_warmup_of_time_leaves_out_what_was_sent_before():
    raw = log_at(0.0, 1.0, 2.0, 3.0).columns()
    assert derive(raw, ("request_id",), measured_rows(raw, 1.5))["request_id"].tolist() == [2, 3]


def test_the_request_table_is_a_copy_with_statuses_in_words():
    """Rows of a log that goes on are not those of a table made before."""
    log = log_at(0.0, 1.0)
    table = frame(log)
    log.arrival_s[0] = 9.0
    assert table["arrival_s"].tolist() == [0.0, 1.0]
    assert table["status"].tolist() == [STATUSES[0]] * 2
    assert [str(table[name].dtype) for name in ("prompt_tokens", "replica", "preemptions")] == ["int64"] * 3
