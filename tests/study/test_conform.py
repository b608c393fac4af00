"""``sim conform``: exit 0 only if every step of every file is equal."""

import json
import os
import subprocess
import sys

import pytest

CONFIG = {
    "max_num_batched_tokens": 64, "max_num_seqs": 8, "max_num_active_seqs": None, "num_gpu_blocks": 100,
    "block_size": 16, "max_model_len": 256, "enable_chunked_prefill": True, "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False, "policy": "fcfs", "enable_prefix_caching": False, "watermark": 0.0,
    "scheduler_reserve_full_isl": True, "async_scheduling": False, "kv_groups": [{"type": "full"}], "speculative": None,
}  # fmt: skip


def step(number, scheduled, free_before, free_after, *, new=(), finished=(), free_update=None):
    """One recorded step of a lone request; it arrives in step 0."""
    return {
        "step": number,
        "arrivals": ["r0"] if number == 0 else [],
        "running_before": int(number > 0),
        "waiting_before": int(number == 0),
        "free_before": free_before,
        "scheduled": scheduled,
        "new": list(new),
        "resumed": [],
        "preempted": [],
        "free_after_schedule": free_after,
        "finished": list(finished),
        "free_after_update": free_after if free_update is None else free_update,
        "running_after": int(not finished),
        "waiting_after": 0,
    }


def trace():
    """80 prompt tokens in chunks of 64 and 16 (five blocks), then one decode in a sixth; worked out by hand."""
    return {
        "vllm_version": "0.32.0",
        "config": CONFIG,
        "aborts": [],
        "requests": [{"id": "r0", "arrival_step": 0, "prompt_len": 80, "output_len": 2, "priority": 0}],
        "steps": [
            step(0, [["r0", 64, 0]], 99, 95, new=[["r0", 0]]),
            step(1, [["r0", 16, 64]], 95, 94),
            step(2, [["r0", 1, 80]], 94, 93, finished=["r0"], free_update=99),
        ],
    }


def conform(*arguments):
    command = [sys.executable, "-m", "sim.cli", "conform", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_hand_made_trace_is_equal(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(trace()))
    done = conform(tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 of 1 equal")


@pytest.mark.parametrize(
    ("number", "field", "value"),
    [(1, "free_after_schedule", 95), (2, "finished", []), (0, "scheduled", [["r0", 80, 0]]), (2, "running_after", 1)],
)
def test_a_difference_is_named_with_both_values(tmp_path, number, field, value):
    wrong = trace()
    right = wrong["steps"][number][field]
    wrong["steps"][number][field] = value
    (tmp_path / "a.json").write_text(json.dumps(wrong))
    done = conform(tmp_path / "a.json", "--json")
    assert done.returncode == 1
    entry = json.loads(done.stdout)["files"][0]
    assert (entry["step"], entry["field"], entry["recorded"], entry["replayed"]) == (number, field, value, right)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        '{"vllm_version": "0.32.0"}',
        json.dumps({**trace(), "requests": [], "steps": []}),
        json.dumps({**trace(), "config": {**CONFIG, "speculative": {"k": 3}}}),
    ],
    ids=["empty", "no-keys", "list", "cut", "no-steps", "speculative"],
)
def test_what_cannot_be_replayed_exits_2_never_0(tmp_path, content):
    (tmp_path / "good.json").write_text(json.dumps(trace()))
    (tmp_path / "bad.json").write_text(content)
    done = conform(tmp_path)
    assert done.returncode == 2
    assert "1 of 2 equal" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_folder_is_read_for_its_files_alone(tmp_path):
    """Not a folder called x.json, nor a pipe; a suffix in capitals and a byte order mark change nothing."""
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "a.JSON").write_text("\ufeff" + json.dumps(trace()), encoding="utf-8")
    done = conform(tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 of 1 equal"), done.stdout


def test_a_missing_file_exits_2(tmp_path):
    assert conform(tmp_path / "none.json").returncode == 2


def test_the_scenarios_worked_out_by_hand_are_equal(repo):
    """Blocks of 4 (2 in the last one); the numbers were worked out on paper from the rules of vLLM 0.32.

    preemption: 4 blocks. Prompts of 7 fill two each; in step 2 ``a`` needs a third for its 9th token, so ``b``, last of
    the running list, gives its two back (2 - 1 = 1 free), and nothing is admitted in that step. ``b`` comes back in
    step 3 with 7 + 1 = 8 known tokens to recompute, in 2 blocks.

    prefix_hit: 9 blocks. ``a`` leaves two full blocks of the segment ``s``; ``b`` hits 8 of its 10 tokens and computes
    2; ``c`` is those 8 tokens and no more, and hits 4, for the last token is always computed.

    priority: 4 blocks. ``low`` (5 tokens, then one a step) and ``high`` (7) hold two each. In step 3 ``low`` has had
    its turn when ``high`` needs a third block: the less important one loses its turn and its blocks. ``high`` ends
    there (7 + 3 tokens), and ``low`` recomputes 5 + 3 = 8 and samples its last.

    async: 9 blocks. The token sampled in step 0 is in flight when step 1 decodes it, in a third block (9 - 3 = 6 free);
    step 0 is updated after that. In step 2 nothing may be scheduled (8 + 2 tokens are all in flight), and the update of
    step 1 ends the request.

    window: 7 blocks of 2, a window of 4. After n computed tokens the blocks wholly below n - 3 are given back before
    the next is taken: block 0 at 6 tokens (3 held), block 1 at 7 (2 held, for the 8th token needs no new one); at 8
    none, and a new one (3 held).
    """
    done = conform(repo / "tests/study/recorded")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "5 of 5 equal"), done.stdout


def test_recordings_of_the_real_engine_are_equal(shared):
    """Of vLLM 0.32: all 26 core recordings, and those of aborts, sliding windows and asynchronous scheduling."""
    golden = shared / "data/golden/vllm-0.32"
    extended = [path for path in sorted((golden / "extended").glob("*.json")) if "spec" not in path.name]
    done = conform(golden / "core", *extended)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "33 of 33 equal"
