"""Files that are no trace, or a damaged one: each is refused in one way, with its name and a cure."""

import json

import pytest

from sim.engine.conform import Difference, replay, replay_file
from sim.engine.trace_checks import UnsupportedTrace

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


def broken(path, value):
    """A trace with one field changed, or taken out (None)."""
    whole = trace(speculative=None)
    *way, last = path
    place = whole
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return whole


WRONG = [
    (("vllm_version",), ""),
    (("vllm_version",), "1e9"),
    (("config", "enable_chunked_prefill"), "no"),
    (("config", "enable_prefix_caching"), 1),
    (("config", "async_scheduling"), []),
    (("config", "policy"), "lottery"),
    (("config", "watermark"), -1),
    (("config", "watermark"), True),
    (("config", "block_size"), 10**12),
    (("config", "num_gpu_blocks"), 1e3),
    (("config", "max_num_seqs"), 10**30),
    (("config", "max_num_active_seqs"), "2"),
    (("config", "kv_groups"), [{"type": "swa", "sliding_window": "4"}]),
    (("requests", 0, "id"), 7),
    (("requests", 0, "arrival_step"), -1),
    (("requests", 0, "priority"), "x"),
    (("requests", 0, "prompt"), [["s", 4]]),
    (("requests", 0, "prompt"), [[7, 5]]),
    (("aborts",), ""),
    (("steps", 0, "step"), True),
    (("steps", 0, "step"), -1),
    (("steps", 0, "scheduled"), None),
    (("steps", 0, "scheduled"), {}),
]


@pytest.mark.parametrize(("path", "value"), WRONG, ids=str)
def test_a_field_of_another_type_is_refused_and_never_equal(tmp_path, path, value):
    """Python would take "no" for a flag that is set, and a step that lacks ``scheduled`` for one that agrees."""
    written = tmp_path / "wrong.json"
    written.write_text(json.dumps(broken(path, value)))
    with pytest.raises(UnsupportedTrace, match=r"wrong\.json.*\n  cure: "):
        replay_file(written)


def test_two_requests_of_one_id_are_refused():
    twice = trace()
    twice["requests"] *= 2
    with pytest.raises(UnsupportedTrace, match="two requests have one id"):
        replay(twice)


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
