"""Which rules a version has, and which settings follow from them."""

from dataclasses import replace

import pytest

from sim.engine import rules_for, settings_for
from sim.engine.versions.vllm import GRAPH_SIZES, VLLM
from sim.errors import RidgelineError
from sim.scenario.specs import EngineSpec

GIB = 2**30


@pytest.mark.parametrize("version", ["0.33", "v0.33", "0.33.1", "v0.33.0", " 0.33 ", "0.33rc1"])
def test_versions_are_read_as_people_write_them(version):
    rules = rules_for("vllm", version)
    assert rules.self_preemption_ends_step is False
    assert rules.notice is None


@pytest.mark.parametrize("blank", [None, "", "  "])
def test_a_blank_version_is_the_newest(blank):
    assert rules_for("vllm", blank) == VLLM[-1]
    assert rules_for("sglang", blank).version == "0.5"
    assert rules_for("trtllm", blank).version == "1.0"


@pytest.mark.parametrize(
    ("version", "record"),
    [("0.8.5", "0.6"), ("0.10", "0.9"), ("0.13.2", "0.11"), ("0.31", "0.25"), ("0.40", "0.33"), ("1", "0.33")],
)
def test_a_version_without_a_record_takes_the_newest_not_above_it_and_says_so(version, record):
    rules = rules_for("vllm", version)
    assert rules.version == record
    assert version in rules.notice
    assert record in rules.notice


@pytest.mark.parametrize(("name", "version"), [("sglang", "0.6"), ("trtllm", "1.2.0rc3")])
def test_newer_versions_of_other_engines_say_whose_rules_stand_in(name, version):
    assert rules_for(name, version).notice.startswith(f"{name} {version} has no record of its own")


@pytest.mark.parametrize("version", ["0.5.4", "0"])
def test_versions_before_the_first_record_are_refused(version):
    with pytest.raises(RidgelineError, match=r"no rules before 0\.6 are known\n  cure: use 0\.6 or later"):
        rules_for("vllm", version)


@pytest.mark.parametrize("version", ["0.33 banana", "0.33x", "1e9", "0..9", ".9", "-1", "newest", "0.9;"])
def test_what_only_begins_like_a_version_is_refused(version):
    with pytest.raises(RidgelineError, match="is not a version"):
        rules_for("vllm", version)


@pytest.mark.parametrize("version", ["v0.33.1", "0.33.0rc2", "0.33.1.post1", "0.33.2+cu124", "0.33.dev1+g1a2b3c"])
def test_builds_of_a_release_have_its_rules(version):
    assert rules_for("vllm", version) == replace(VLLM[-1], version=version.removeprefix("v"))


@pytest.mark.parametrize(("version", "scheduler"), [("0.6.6.post1", "vllm-v0"), ("0.9", "vllm-v1")])
def test_vllm_changed_its_scheduler(version, scheduler):
    assert rules_for("vllm", version).scheduler == scheduler


@pytest.mark.parametrize("name", ["orca", "static", "sarathi", "llama.cpp"])
def test_a_scheduler_without_versions_takes_none(name):
    assert rules_for(name, None).version == ""
    with pytest.raises(RidgelineError, match="leave version out"):
        rules_for(name, "1.0")


def test_what_is_no_version_is_refused():
    with pytest.raises(RidgelineError, match="'newest' is not a version"):
        rules_for("vllm", "newest")


def test_an_unknown_engine_does_not_get_the_rules_of_vllm():
    with pytest.raises(RidgelineError, match=r"engine tgi has no record of rules\n  cure: use one of vllm, sglang"):
        rules_for("tgi", None)


BOUNDARIES = {
    "async_scheduling": ("0.11", False, "0.14", True),
    "reserve_full_prompt": ("0.14", False, "0.19", True),
    "graphs_counted_in_memory": ("0.19", False, "0.21", True),
    "gpu_memory_utilization": ("0.21", 0.9, "0.25", 0.92),
    "unhashed_blocks_first": ("0.21", False, "0.25", True),
    "budget_returns": ("0.25", False, "0.32", True),
    "lone_request_ignores_threshold": ("0.25", False, "0.32", True),
    "unfitting_prompt_is_set_aside": ("0.25", True, "0.32", False),
    "self_preemption_ends_step": ("0.32", True, "0.33", False),
}


@pytest.mark.parametrize("rule", BOUNDARIES)
def test_where_releases_differ(rule):
    last, old, first, new = BOUNDARIES[rule]
    assert getattr(rules_for("vllm", last), rule) == old
    assert getattr(rules_for("vllm", first), rule) == new


def test_graph_sizes():
    assert GRAPH_SIZES[:6] == (1, 2, 4, 8, 16, 24)
    assert GRAPH_SIZES[-3:] == (480, 496, 512)
    assert {248, 256, 272} < set(GRAPH_SIZES)
    assert 264 not in GRAPH_SIZES


def resolved(version="0.33", memory_gib=80, device="h100-sxm", max_model_len=131_072, **knobs):
    return settings_for(
        rules_for("vllm", version),
        EngineSpec(**knobs),
        memory_bytes=memory_gib * GIB,
        device_name=device,
        max_model_len=max_model_len,
    )


@pytest.mark.parametrize(
    ("version", "memory_gib", "device", "usage", "tokens", "sequences"),
    [
        ("0.33", 80, "h100-sxm", "server", 8192, 1024),
        ("0.33", 80, "h100-sxm", "offline", 16384, 1024),
        ("0.33", 80, "A100-SXM", "server", 2048, 256),
        ("0.33", 80, "a100-sxm", "offline", 8192, 256),
        ("0.33", 48, "l40s", "server", 2048, 256),
        ("0.33", 192, "b200", "server", 16384, 1024),
        ("0.25", 192, "b200", "server", 8192, 1024),
        ("0.33", 128, "gb10", "server", 2048, 256),
    ],
)
def test_default_budgets_by_device(version, memory_gib, device, usage, tokens, sequences):
    settings = resolved(version, memory_gib, device, usage=usage).settings
    assert (settings.max_batched_tokens, settings.max_sequences) == (tokens, sequences)


@pytest.mark.parametrize("rules", VLLM, ids=lambda rules: rules.version)
def test_every_record_says_where_its_rules_were_read(rules):
    """0.21's come from 0.19, but for its memory rule; all others name their own release."""
    release = "0.19" if rules.version == "0.21" else rules.version
    assert rules.source.startswith(f"vLLM {release}")


def test_without_chunked_prefill_a_step_takes_the_longest_prompt():
    assert resolved(chunked_prefill=False).settings.max_batched_tokens == 131_072


def test_budgets_are_no_larger_than_what_can_be_used():
    """4 requests of at most 512 tokens; and no more sequences than tokens."""
    assert resolved(max_sequences=4, max_model_len=512).settings.max_batched_tokens == 2048
    assert resolved(max_batched_tokens=100).settings.max_sequences == 100


def test_what_the_user_sets_stays_and_what_the_version_decided_is_reported():
    result = resolved(max_batched_tokens=4096, prefix_caching=False, policy="priority", block_tokens=32)
    settings = result.settings
    assert (settings.max_batched_tokens, settings.prefix_caching, settings.policy) == (4096, False, "priority")
    assert settings.block_tokens == 32
    assert result.defaults_taken == {
        "max_sequences": 1024,
        "max_model_len": 131_072,
        "chunked_prefill": True,
        "long_prefill_threshold": 0,
        "async_scheduling": True,
        "reserve_full_prompt": True,
        "watermark": 0.0,
    }


@pytest.mark.parametrize(("version", "first"), [("0.25", 4), ("0.33", 20)])
def test_a_lone_prompt_ignores_the_threshold_since_0_32(world, version, first):
    w = world(version, long_prefill_threshold=4)
    w.add("a", 20, 1)
    assert w.step().scheduled == {"a": first}


def test_the_threshold_cuts_everyone_when_there_are_two(world):
    w = world(long_prefill_threshold=4)
    w.add("a", 20, 1)
    w.add("b", 3, 5)
    assert w.scheduled(2) == [{"a": 4, "b": 3}, {"a": 4, "b": 1}]


def test_an_adaptive_threshold_shares_the_budget(world):
    w = world(long_prefill_threshold=4, adaptive_long_prefill=True)
    for name in "ab":
        w.add(name, 60, 1)
    assert w.step().scheduled == {"a": 32, "b": 32}


@pytest.mark.parametrize(("version", "expected"), [("0.25", {"a": 40, "c": 10}), ("0.33", {"a": 40})])
def test_without_chunked_prefill_an_unfitting_prompt_was_skipped_before_0_32(world, version, expected):
    """24 tokens are left: b needs 30, c only 10. b stays first in the queue."""
    w = world(version, chunked_prefill=False, max_model_len=64)
    for name, tokens in (("a", 40), ("b", 30), ("c", 10)):
        w.add(name, tokens, 1)
    assert w.step().scheduled == expected
    assert next(iter(w.step().scheduled)) == "b"


@pytest.mark.parametrize(("version", "expected"), [("0.14", {"a": 8, "b": 4}), ("0.19", {"a": 8})])
def test_whole_prompts_are_reserved_for_since_0_19(world, version, expected):
    reserve = rules_for("vllm", version).reserve_full_prompt
    w = world(version, usable=4, max_batched_tokens=12, reserve_full_prompt=reserve)
    w.add("a", 8, 2)
    w.add("b", 12, 1)
    assert w.step().scheduled == expected
