"""The trace: valid, nested, in microseconds, the same bytes every time."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.report import perfetto
from sim.report.perfetto import write_trace


def events_of(path: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    return trace["traceEvents"]


@pytest.fixture
def events(requests: pd.DataFrame, steps: pd.DataFrame, tmp_path: Path) -> list[dict[str, Any]]:
    write_trace(requests, steps, tmp_path / "trace.json.gz")
    return events_of(tmp_path / "trace.json.gz")


def test_steps_are_slices_in_microseconds(events: list[dict[str, Any]], steps: pd.DataFrame) -> None:
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == len(steps)
    assert slices[5]["ts"] == pytest.approx(steps["start_s"][5] * 1e6, abs=1e-3)
    assert slices[5]["dur"] == pytest.approx(steps["duration_s"][5] * 1e6, abs=2e-3)
    assert slices[5]["args"]["bound"] == steps["bound"][5]
    assert slices[5]["args"]["decode_sequences"] == steps["decode_sequences"][5]
    wanted = np.select(
        [(steps["prefill_tokens"] > 0) & (steps["decode_sequences"] > 0), steps["prefill_tokens"] > 0],
        ["mixed", "prefill"],
        np.where(steps["decode_sequences"] > 0, "decode", "empty"),
    )
    assert [event["name"] for event in slices] == list(wanted)


def test_steps_of_a_replica_do_not_overlap(events: list[dict[str, Any]]) -> None:
    ends: dict[int, float] = defaultdict(float)
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] >= ends[event["pid"]] - 1e-6
            ends[event["pid"]] = event["ts"] + event["dur"]
    assert len(ends) == 2


def test_processes_are_named(events: list[dict[str, Any]]) -> None:
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "not routed", 1: "replica 0", 2: "replica 1"}


def test_counters_follow_the_steps_and_fall_to_zero_when_idle(tmp_path: Path, requests: pd.DataFrame) -> None:
    steps = pd.DataFrame(
        {
            "replica": 0,
            "start_s": [0.0, 0.5, 2.0],
            "duration_s": [0.5, 0.5, 0.5],
            "prefill_tokens": [10, 0, 0],
            "decode_sequences": [0, 1, 1],
            "running": [1, 1, 2],
            "waiting": [0, 4, 0],
            "kv_blocks_used": [3, 3, 5],
        }
    )
    write_trace(requests.iloc[:0], steps, tmp_path / "t.json.gz")
    levels = [
        (event["ts"], event["name"], event["args"][event["name"]])
        for event in events_of(tmp_path / "t.json.gz")
        if event["ph"] == "C"
    ]
    assert [level for level in levels if level[1] == "running"] == [
        (0.0, "running", 1),
        (1e6, "running", 0),
        (2e6, "running", 2),
    ]
    assert (5e5, "waiting", 4) in levels
    assert (1e6, "waiting", 0) in levels
    assert [level for level in levels if level[1] == "KV blocks"] == [(0.0, "KV blocks", 3), (2e6, "KV blocks", 5)]


def test_request_phases_nest_and_follow_each_other(events: list[dict[str, Any]], requests: pd.DataFrame) -> None:
    by_id = defaultdict(list)
    for event in events:
        if event["ph"] in "be":
            by_id[event["id"]].append(event)
    assert len(by_id) == len(requests)
    for marks in by_id.values():
        stack, last = [], 0.0
        for event in marks:
            assert event["ts"] >= last
            last = event["ts"]
            if event["ph"] == "b":
                stack.append(event["name"])
                assert len(stack) <= 2
            else:
                assert stack.pop() == event["name"]
        assert stack == []
    whole = [(event["ph"], event["name"]) for event in by_id["50"]]
    assert whole[0] == ("b", "request 50")
    assert [name for kind, name in whole if kind == "b"][1:] == ["dispatch", "queue", "prefill", "decode"]
    first_token_us = next(e["ts"] for e in by_id["50"] if (e["ph"], e["name"]) == ("e", "prefill"))
    assert first_token_us == pytest.approx(requests["first_token_s"][50] * 1e6, abs=1e-3)


def test_rejected_and_unfinished_requests(requests: pd.DataFrame, tmp_path: Path) -> None:
    """A rejected request is told where it was sent; one that still decodes reaches to the trace's end."""
    table = requests.iloc[[0, 50, 399]].copy()
    table["replica"] = [-1, 0, 0]
    table["class"] = '模型 "quoted"'
    table.loc[50, ["finish_s", "e2e_s", "tpot_s"]] = np.nan
    table.loc[50, "status"] = "unfinished"
    write_trace(table, pd.DataFrame(columns=["replica", "start_s", "duration_s"]), tmp_path / "t.json.gz")
    marks = [event for event in events_of(tmp_path / "t.json.gz") if event["ph"] in "be"]
    rejected = [event for event in marks if event["id"] == "0"]
    assert [event["ts"] for event in rejected] == [rejected[0]["ts"]] * 2
    assert rejected[0]["pid"] == 0
    assert rejected[0]["args"]["status"] == "rejected"
    assert rejected[0]["args"]["class"] == '模型 "quoted"'
    end_us = table["finish_s"].max() * 1e6
    decode_end = next(e for e in marks if (e["id"], e["ph"], e["name"]) == ("50", "e", "decode"))
    assert decode_end["ts"] == pytest.approx(end_us, abs=1e-3)


def test_same_tables_same_bytes(requests: pd.DataFrame, steps: pd.DataFrame, tmp_path: Path) -> None:
    for name in ("a.json.gz", "other.json.gz"):
        write_trace(requests, steps, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "other.json.gz").read_bytes()


def test_steps_may_come_in_pieces(
    requests: pd.DataFrame, steps: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(requests, steps, tmp_path / "whole.json.gz")
    monkeypatch.setattr(perfetto, "_BATCH_ROWS", 97)
    pieces = (steps.iloc[first : first + 500] for first in range(0, len(steps), 500))
    write_trace(requests, pieces, tmp_path / "pieces.json.gz")
    assert (tmp_path / "whole.json.gz").read_bytes() == (tmp_path / "pieces.json.gz").read_bytes()


def test_a_failure_leaves_nothing_behind(requests: pd.DataFrame, steps: pd.DataFrame, tmp_path: Path) -> None:
    def failing() -> Any:
        yield steps.iloc[:10]
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        write_trace(requests, failing(), tmp_path / "t.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_empty_run(empty_requests: pd.DataFrame, empty_steps: pd.DataFrame, tmp_path: Path) -> None:
    write_trace(empty_requests, empty_steps, tmp_path / "t.json.gz")
    assert events_of(tmp_path / "t.json.gz") == []


def test_missing_figures_are_null(requests: pd.DataFrame, tmp_path: Path) -> None:
    steps = pd.DataFrame(
        {"replica": [0], "start_s": [0.0], "duration_s": [1.0], "running": [np.nan], "extra": [np.inf]}
    )
    write_trace(requests.iloc[:0], steps, tmp_path / "t.json.gz")
    slices = [event for event in events_of(tmp_path / "t.json.gz") if event["ph"] == "X"]
    assert slices[0]["args"] == {"running": None, "extra": None}
