"""``sim conform`` of a live server's step log: times in, decisions and token times compared."""

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.fleet.step_log import read_step_log, token_times
from sim.fleet.step_replay import SAME_INSTANT_S, replay_log

Lines = list[dict]
"""Of the hand-made log: header 0, then arrivals and steps; see ``test_a_log_worked_out_by_hand_is_equal``."""
STEP_LINES = [2, 5, 6, 7, 9, 11, 12]
"""Where the steps are."""


@pytest.fixture
def lines(repo) -> Lines:
    return [json.loads(line) for line in (repo / "workloads/data/live_steps.jsonl").read_text().splitlines()]


@pytest.fixture
def conform(tmp_path) -> Callable:
    """Runs the command on a file of these lines (or this text); returns its exit status and its verdict."""

    def run(content: Lines | str, name: str = "steps.jsonl") -> tuple[int, dict]:
        text = content if isinstance(content, str) else "".join(json.dumps(line) + "\n" for line in content)
        (tmp_path / name).write_text(text)
        done = CliRunner().invoke(app, ["conform", str(tmp_path / name), "--json"])
        return done.exit_code, json.loads(done.stdout)["files"][0]

    return run


def test_a_log_worked_out_by_hand_is_equal(conform, lines):
    """5 blocks of 4, 8 tokens and 2 sequences a step.

    ``a`` (10 + 3 tokens) takes 8, then 2. ``b`` (3 + 2) and ``c`` (2 + 1) arrive in the gap after step 0, and step 1
    sees both: it has a place for ``b`` alone, and 5 - 3 - 1 = 1 block is left. ``b`` ends with its 4th computed token,
    in the block it has (2 free after step 2); ``c`` takes its place in step 3, which ends ``a`` too (12 = 3 blocks).
    The engine idles until ``d`` arrives, 8.5 s later. ``e`` arrives at the very instant step 5 starts, and is in it.
    """
    status, verdict = conform(lines)
    assert (status, verdict["status"], verdict.get("assumed")) == (0, "equal", None)


def test_the_token_times_are_those_of_the_hand_made_log(repo):
    """First tokens where a prompt is computed: ``a`` and ``b`` in step 1, not in step 0; last ones where they end."""
    times = set(token_times(read_step_log(repo / "workloads/data/live_steps.jsonl")))
    first = {(1, "a"), (1, "b"), (3, "c"), (4, "d"), (5, "e")}
    last = {(2, "b"), (3, "a"), (3, "c"), (4, "d"), (6, "e")}
    assert times == {(*at, "first_token_s") for at in first} | {(*at, "finish_s") for at in last}


@pytest.mark.parametrize(
    ("step", "field", "value"),
    [
        (0, "scheduled", [["a", 7, 0]]),
        (1, "scheduled", [["a", 2, 8], ["b", 2, 0]]),
        (1, "scheduled", [["b", 3, 0], ["a", 2, 8]]),
        (2, "scheduled", [["a", 1, 9], ["b", 1, 3]]),
        (4, "scheduled", []),
        (1, "preempted", ["b"]),
        (2, "finished", []),
        (3, "running", 1),
        (1, "waiting", 0),
        (6, "free_blocks", 4),
    ],
)
def test_a_difference_is_named_with_its_step_and_both_values(conform, lines, step, field, value):
    right = lines[STEP_LINES[step]][field]
    lines[STEP_LINES[step]][field] = value
    status, verdict = conform(lines)
    assert status == 1
    named = tuple(verdict[name] for name in ("step", "field", "recorded", "replayed"))
    assert named == (step, field, value, right)


def test_an_arrival_is_seen_by_the_step_it_precedes(conform, lines):
    """``c`` a moment after step 1 starts: it no longer waits when that step is planned, but it does when it ends.
    ``b`` a moment after: step 1 has no ``b``.
    """
    lines[4]["t"] = 10.6
    assert conform(lines)[0] == 0
    lines[3]["t"] = 10.5031
    status, verdict = conform(lines)
    assert (status, verdict["step"], verdict["field"]) == (1, 1, "scheduled")
    assert verdict["replayed"] == [["a", 2, 8]]


def test_an_idle_engine_cannot_start_before_the_arrival(conform, lines):
    """``d`` is logged 0.2 s after the step that serves it started; the log ends there."""
    lines[8]["t"] = 20.201
    status, verdict = conform(lines[:10])
    assert (status, verdict["step"], verdict["field"]) == (1, 4, "t0")
    assert (verdict["recorded"], verdict["replayed"]) == (20.001, 20.201)


def test_steps_that_overlap_are_a_difference(conform, lines):
    """Step 1 is logged to end after step 2 starts, which cannot be."""
    lines[5]["t2"] = 11.1
    status, verdict = conform(lines)
    assert (status, verdict["step"], verdict["field"], verdict["recorded"]) == (1, 2, "t0", 11.001)


def test_a_log_may_end_with_requests_under_way(conform, lines):
    """Cut after step 1; but a step that has gone missing in the middle is a difference."""
    assert conform(lines[:6])[0] == 0
    del lines[6]
    assert conform(lines)[0] == 1


def test_a_request_that_never_arrived_is_a_difference(conform, lines):
    del lines[4]
    status, verdict = conform(lines)
    assert (status, verdict["step"], verdict["field"]) == (1, 1, "waiting")


def test_a_token_time_off_the_step_ends_is_a_difference(repo, monkeypatch):
    """The request table is compared for itself: here it is a nanosecond late in what it writes."""
    from sim.results.recorder import ReplicaRecorder

    log = read_step_log(repo / "workloads/data/live_steps.jsonl")
    emit = ReplicaRecorder._emit
    monkeypatch.setattr(ReplicaRecorder, "_emit", lambda self, outcome, end_s: emit(self, outcome, end_s + 1e-9))
    difference = replay_log(log)
    assert (difference.step, difference.field, difference.recorded) == (1, "first_token_s of a", 11.0)
    assert difference.replayed - 11.0 > SAME_INSTANT_S


def test_a_log_is_known_by_its_lines_not_by_its_name(conform, lines):
    assert conform(lines, "recorded.json")[0] == 0
    assert conform(lines, "log.txt")[0] == 0


def test_what_the_log_does_not_say_is_told(conform, lines):
    del lines[0]["config"]["vllm_version"]
    status, verdict = conform(lines)
    assert (status, verdict["assumed"]) == (0, {"vllm_version": "0.32.0"})


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.pop(0),
        lambda lines: lines.__delitem__(slice(2, None)),
        lambda lines: lines[0]["config"].update(vllm_version="0.8.0"),
        lambda lines: lines[0]["config"].update(vllm_version=[1]),
        lambda lines: lines[0]["config"].update({"async": True}),
        lambda lines: lines[0]["config"].update(enable_prefix_caching=True),
        lambda lines: lines[0]["config"].update(v2_runner=True),
        lambda lines: lines[0]["config"].update(speculative=3),
        lambda lines: lines[0]["config"].update(block_size=0),
        lambda lines: lines[0]["config"].update(policy="lottery"),
        lambda lines: lines[0]["config"].update(watermark="none"),
        lambda lines: lines[0]["config"].update(watermark=-1),
        lambda lines: lines[0]["config"].update(vllm_version=""),
        lambda lines: lines[0]["config"].update(enable_chunked_prefill="no"),
        lambda lines: lines[0]["config"].update(reserve_full_isl=0),
        lambda lines: lines[0]["config"].update(block_size=10**12),
        lambda lines: lines[0]["config"].pop("num_gpu_blocks"),
        lambda lines: lines[0].update(config=[]),
        lambda lines: lines[1].pop("output"),
        lambda lines: lines[1].update(prompt=0),
        lambda lines: lines[1].update(prompt=10**400),
        lambda lines: lines[1].update(t=float("nan")),
        lambda lines: lines[1].update(arrive=["a"]),
        lambda lines: lines[3].update(arrive="a"),
        lambda lines: lines[2].pop("free_blocks"),
        lambda lines: lines[2].update(drafts=3),
        lambda lines: lines[2].update(t2=9.0),
        lambda lines: lines[2].update(t2=float("inf")),
        lambda lines: lines[2].update(t0=10**400, t1=10**400, t2=10**400),
        lambda lines: lines[2].update(t0="a", t1="b", t2="c"),
        lambda lines: lines[2].update(scheduled=[["a", 8]]),
        lambda lines: lines[2].update(scheduled=3),
        lambda lines: lines[2].update(scheduled=[[["a"], 8, 0]]),
        lambda lines: lines[2].update(finished=[["a"]]),
        lambda lines: lines.insert(2, {}),
    ],
)
def test_a_log_that_cannot_be_replayed_exits_2(conform, lines, change):
    change(lines)
    status, verdict = conform(lines)
    assert (status, verdict["status"]) == (2, "unreadable")
    assert "cure: " in verdict["reason"]


def test_a_line_cut_short_exits_2(conform, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert conform(text[:-10])[0] == 2


def test_a_folder_takes_every_json_and_jsonl(tmp_path, lines):
    """A client's results beside the log are no trace: nothing is skipped in silence."""
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "notes.txt").write_text("not looked at")
    done = CliRunner().invoke(app, ["conform", str(tmp_path)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "1 of 1 equal")
    (tmp_path / "client.json").write_text('{"ttfts_s": [0.1]}')
    done = CliRunner().invoke(app, ["conform", str(tmp_path)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (2, "1 of 2 equal")


def test_a_live_server_is_reproduced_step_by_step(shared):
    """VLLM 0.32 on a CPU, eight loads: 8,194 steps and both token times of 770 requests."""
    path = shared / "data/measured/vllm_cpu/steps_A.jsonl"
    log = read_step_log(path)
    assert (len(log.steps), len(log.arrivals), len(list(token_times(log)))) == (8194, 770, 2 * 770)
    done = CliRunner().invoke(app, ["conform", str(path)])
    assert done.exit_code == 0, done.stdout
    client = CliRunner().invoke(app, ["conform", str(path.with_name("A_cap.json"))])
    assert client.exit_code == 2
