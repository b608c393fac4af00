"""Files that are no trace, or a damaged one: each is refused in one way, with its name and a cure."""

import json

import pytest

from sim.engine.conform import Difference, UnsupportedTrace, replay, replay_file

CONFIG = {
    "max_num_batched_tokens": 8,
    "max_num_seqs": 2,
    "max_num_active_seqs": None,
    "max_model_len": 32,
    "block_size": 4,
    "num_gpu_blocks": 9,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "policy": "fcfs",
    "async_scheduling": False,
    "scheduler_reserve_full_isl": True,
    "watermark": 0.0,
    "kv_groups": [{"type": "full"}],
}


def trace(scheduled=5, **config):
    """One prompt of 5 tokens with one token of output, in 8 free blocks."""
    step = {
        "step": 0,
        "arrivals": ["a"],
        "free_before": 8,
        "scheduled": [["a", scheduled, 0]],
        "free_after_schedule": 6,
        "finished": ["a"],
        "free_after_update": 8,
    }
    request = {"id": "a", "arrival_step": 0, "prompt_len": 5, "output_len": 1, "priority": 0}
    return {
        "vllm_version": "0.32.0",
        "config": {**CONFIG, **config},
        "requests": [request],
        "aborts": [],
        "steps": [step],
    }


def test_an_own_trace_replays():
    assert replay(trace()) is None


def test_a_wrong_own_trace_names_step_field_and_both_values():
    assert replay(trace(scheduled=4)) == Difference(0, "scheduled", [["a", 4, 0]], [["a", 5, 0]])


def test_a_request_left_over_at_the_end_is_a_difference():
    longer = trace()
    longer["requests"][0]["output_len"] = 2
    del longer["steps"][0]["finished"], longer["steps"][0]["free_after_update"]
    assert replay(longer) == Difference(0, "unfinished", 0, 1)


BROKEN = {
    "empty": b"",
    "binary": b"\xff\xfe\x00\x01",
    "half": b'{"config": {',
    "number": b"3",
    "null": b"null",
    "list": b"[]",
    "nested": b"[" * 100_000,
    "config is a list": json.dumps({**trace(), "config": []}).encode(),
    "version is a number": json.dumps({**trace(), "vllm_version": 0.32}).encode(),
    "no steps": json.dumps({**trace(), "steps": None}).encode(),
    "no groups": json.dumps(trace(kv_groups=[])).encode(),
    "block of 0": json.dumps(trace(block_size=0)).encode(),
    "endless watermark": json.dumps(trace(watermark=float("inf"))).encode(),
    "abort of nobody": json.dumps({**trace(), "aborts": [[0, "b"]]}).encode(),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_damage_of_any_kind_is_refused(tmp_path, kind):
    path = tmp_path / "damaged.json"
    path.write_bytes(BROKEN[kind])
    with pytest.raises(UnsupportedTrace, match=r"damaged\.json.*\n  cure: "):
        replay_file(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(UnsupportedTrace, match=path.name):
            replay_file(path)


@pytest.mark.parametrize(
    ("speculative", "said"),
    [
        ({"method": "ngram", "k": 3}, "acceptance_pattern"),
        ({"method": "medusa", "k": 3, "acceptance_pattern": [1]}, "medusa"),
    ],
)
def test_speculation_that_cannot_be_replayed_is_refused(speculative, said):
    with pytest.raises(UnsupportedTrace, match=said):
        replay(trace(speculative=speculative))


@pytest.mark.parametrize("version", ["newest", "0.8.5"])
def test_a_version_without_rules_is_refused_as_a_trace(version):
    """So that the other files of a folder are still replayed."""
    with pytest.raises(UnsupportedTrace, match=version):
        replay({**trace(), "vllm_version": version})
