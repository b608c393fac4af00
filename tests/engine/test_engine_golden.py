"""Recorded decisions of vLLM 0.32's scheduler, replayed step by step."""

import copy
import json

import pytest

from sim.engine.conform import replay, replay_file
from sim.engine.trace_checks import UnsupportedTrace

CORE = [
    "01_single",
    "02_short_batch",
    "03_long_prompt_chunking",
    "04_mixed_decode_chunk",
    "05_max_num_seqs",
    "06_preempt_basic",
    "07_preempt_multi",
    "08_no_isl_reservation",
    "09_isl_reservation_hol",
    "10_priority_preempt",
    "11_priority_bursty",
    "12_prefix_shared_system",
    "13_prefix_identical",
    "14_prefix_multiturn",
    "15_prefix_eviction",
    "16_prefix_preempt_resume",
    "17_long_prefill_threshold",
    "18_block_boundaries",
    "19_max_model_len_cap",
    "20_watermark",
    "21_no_chunked_prefill",
    "22_bursty_loose",
    "23_bursty_tight",
    "24_bursty_prefix_tight",
    "25_long_prefill_adaptive",
    "26_priority_budget_return",
]
EXTENDED = [
    "x1_abort",
    "x2_max_num_active_seqs",
    "x3_swa_hybrid",
    "x4_swa_only",
    "x5_swa_hybrid_prefix",
    "x6_spec_ngram",
    "x7_spec_ngram_tight",
    "x8_spec_draft_model",
    "x9_async",
    "y1_async_tight",
]
TRACES = [f"core/{name}" for name in CORE] + [f"extended/{name}" for name in EXTENDED]


@pytest.fixture(scope="session")
def golden(shared):
    return shared / "data/golden/vllm-0.32"


@pytest.mark.parametrize("name", TRACES)
def test_every_step_is_as_vllm_recorded_it(golden, name):
    assert replay_file(golden / f"{name}.json") is None


@pytest.mark.parametrize("name", TRACES)
def test_so_it_is_without_short_cuts(golden, name):
    assert replay(json.loads((golden / f"{name}.json").read_text()), plain=True) is None


FIELDS = [
    "scheduled",
    "new",
    "resumed",
    "preempted",
    "finished",
    "free_before",
    "free_after_schedule",
    "free_after_update",
    "running_before",
    "running_after",
    "waiting_before",
    "waiting_after",
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_recording_is_found(golden, field):
    """The replay compares this field: change it in the last step that has it, and that step is named."""
    trace = json.loads((golden / "core/16_prefix_preempt_resume.json").read_text())
    step = next(step for step in reversed(trace["steps"]) if step[field])
    changed = copy.deepcopy(trace)
    target = next(other for other in changed["steps"] if other["step"] == step["step"])
    target[field] = target[field] + 1 if isinstance(target[field], int) else target[field][1:]
    difference = replay(changed)
    assert difference is not None
    assert (difference.step, difference.field) == (step["step"], field)


@pytest.mark.parametrize("field", ["spec", "accepted"])
def test_a_changed_verification_is_found(golden, field):
    trace = json.loads((golden / "extended/x7_spec_ngram_tight.json").read_text())
    step = next(step for step in reversed(trace["steps"]) if step[field])
    step[field][-1][1] += 1
    difference = replay(trace)
    assert difference is not None
    assert (difference.step, difference.field) == (step["step"], field)


def test_a_file_that_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"steps": []}')
    with pytest.raises(UnsupportedTrace, match=r"broken\.json"):
        replay_file(path)


def test_an_unknown_kv_group_is_refused():
    config = {"speculative": None, "kv_groups": [{"type": "mamba"}]}
    with pytest.raises(UnsupportedTrace, match="mamba"):
        replay({"config": config, "vllm_version": "0.32.0"})
