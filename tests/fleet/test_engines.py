"""Every engine from YAML to a summary."""

import pytest

import sim
from sim.errors import ScenarioError

ENGINES = {
    "vllm_v0": {"name": "vllm", "version": "0.6"},
    **{name.replace(".", "_"): {"name": name} for name in ("sglang", "trtllm", "orca", "static", "sarathi")},
    "llama_cpp": {"name": "llama.cpp"},
}
"""By the name of the example."""
LOAD = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm"},
    "traffic": {
        "arrivals": {"process": "poisson", "rate": 30},
        "requests": 120,
        "prompt_tokens": {"distribution": "lognormal", "mean": 700, "p99": 4000},
        "output_tokens": {"distribution": "lognormal", "mean": 60, "p99": 300},
    },
}
FIGURES = ("ttft_s", "tpot_s", "e2e_s", "kv", "requests", "duration_s", "bound", "rejections")


def summary(engine, **changes):
    return sim.run(LOAD, overrides={"engine": engine, **changes}).summary


def refusal(engine, **changes):
    with pytest.raises(ScenarioError) as caught:
        sim.run(LOAD, overrides={"engine": engine, **changes})
    return str(caught.value)


@pytest.mark.parametrize("name", ENGINES)
def test_every_example_runs_and_serves_everyone(name, repo):
    found = sim.run(repo / f"workloads/engines/{name}.yaml", overrides={"traffic.requests": 100}).summary
    assert found["engine"]["name"] == ENGINES[name]["name"]
    assert found["requests"]["completed"] == found["requests"]["submitted"] == 100


@pytest.mark.parametrize("name", ENGINES)
def test_the_summary_says_whose_rules_ran(name):
    found = summary(ENGINES[name])
    title = " ".join(filter(None, (found["engine"]["name"], found["engine"]["version"])))
    assumed = {entry["what"]: entry for entry in found["assumed"]}
    assert assumed["engine"]["value"] == title
    assert assumed["engine settings"]["why"] == f"defaults of {title}"
    assert assumed["expected error of latencies"]["value"] == (
        "TPOT 9 %, TTFT 33 %" if found["engine"]["name"] == "vllm" else "not known"
    )


def test_the_summary_shows_only_settings_that_the_engine_has():
    assert {"long_prefill_threshold", "prefix_caching"}.isdisjoint(summary(ENGINES["orca"])["engine"]["settings"])
    assert summary(ENGINES["sglang"])["engine"]["settings"]["max_prefill_tokens"] == 16384


EFFECTIVE = [
    ("sglang", {"max_batched_tokens": 512}, {}),
    ("sglang", {"max_prefill_tokens": 600}, {}),
    ("sglang", {"gpu_memory_utilization": 0.5}, {}),
    ("sglang", {"chunked_prefill": False}, {"traffic.prompt_tokens": 9000}),
    ("sglang", {"prefix_caching": False}, {"traffic.shared_prefix": {"tokens": 300}}),
    ("sglang", {"policy": "lof"}, {"engine.max_sequences": 2}),
    ("sglang", {"policy": "random"}, {"engine.max_sequences": 2}),
    ("sglang", {"async_scheduling": False}, {}),
    ("sglang", {"cuda_graphs": False}, {}),
    ("sglang", {"schedule_conservativeness": 0.1}, {"engine.kv_blocks": 6000, "engine.max_model_len": 5000}),
    ("sglang", {"mixed_chunk": True}, {}),
    ("sglang", {"ignore_eos": True}, {"engine.kv_blocks": 6000, "engine.max_model_len": 5000}),
    ("sglang", {"scheduler_recv_interval": 10}, {}),
    ("sglang", {"block_tokens": 64}, {}),
    ("trtllm", {"max_batched_tokens": 2048}, {}),
    ("trtllm", {"gpu_memory_utilization": 0.5}, {}),
    ("trtllm", {"chunked_prefill": True}, {"engine.max_batched_tokens": 1024}),
    ("trtllm", {"chunking_policy": "equal-progress"}, {"engine.max_batched_tokens": 512}),
    ("trtllm", {"prefix_caching": False}, {"traffic.shared_prefix": {"tokens": 300}}),
    ("trtllm", {"async_scheduling": False}, {}),
    ("trtllm", {"capacity_policy": "max-utilization"}, {"engine.kv_blocks": 200, "engine.max_model_len": 5000}),
    ("trtllm", {"capacity_policy": "static-batch"}, {}),
    ("trtllm", {"max_sequences": 4}, {}),
    ("orca", {"gpu_memory_utilization": 0.5}, {}),
    ("orca", {"max_sequences": 4}, {}),
    ("orca", {"block_tokens": 64}, {}),
    ("static", {"max_model_len": 3000}, {}),
    ("static", {"max_sequences": 2}, {"engine.max_model_len": 8192}),
    ("sarathi", {"max_batched_tokens": 128}, {}),
    ("sarathi", {"watermark": 0.5}, {"engine.kv_blocks": 600, "engine.max_model_len": 3000}),
    ("sarathi", {"prefix_caching": True}, {"traffic.shared_prefix": {"tokens": 300}}),
    ("llama_cpp", {"max_batched_tokens": 256}, {}),
    ("llama_cpp", {"max_sequences": 8}, {}),
    ("llama_cpp", {"kv_blocks": 4000}, {}),
    ("llama_cpp", {"prefix_caching": False}, {"traffic.shared_prefix": {"tokens": 300}}),
    ("vllm_v0", {"max_batched_tokens": 1024, "max_sequences": 64}, {}),
    ("vllm_v0", {"chunked_prefill": False}, {}),
    ("vllm_v0", {"prefix_caching": True}, {"traffic.shared_prefix": {"tokens": 300}}),
    ("vllm_v0", {"cuda_graphs": False}, {}),
    ("vllm_v0", {"watermark": 0.5}, {"engine.kv_blocks": 600, "engine.max_model_len": 3000}),
]


@pytest.mark.parametrize(("name", "setting", "world"), EFFECTIVE, ids=str)
def test_every_setting_changes_the_result(name, setting, world):
    """inference-sim#1035: a key that is accepted has an effect."""
    base = {**ENGINES[name]}
    if "chunking_policy" in setting:
        base["chunked_prefill"] = True
    for path in [path for path in world if path.startswith("engine.")]:
        base[path.removeprefix("engine.")] = world[path]
    traffic = {path: value for path, value in world.items() if path.startswith("traffic.")}
    plain, changed = summary(base, **traffic), summary({**base, **setting}, **traffic)
    assert any(plain[figure] != changed[figure] for figure in FIGURES)


NGRAM = {"method": "ngram", "tokens": 3, "acceptance": 0.5}
SHARING = "vllm 0.33, sglang 0.5, trtllm 1.0, sarathi, orca, static"


@pytest.mark.parametrize(
    ("engine", "key", "value", "having"),
    [
        ({"name": "vllm", "version": "0.33"}, "mixed_chunk", True, "sglang 0.5"),
        ({"name": "vllm", "version": "0.33"}, "capacity_policy", "static-batch", "trtllm 1.0"),
        ({"name": "vllm", "version": "0.6"}, "policy", "priority", "vllm 0.33, sglang 0.5"),
        ({"name": "vllm", "version": "0.6"}, "async_scheduling", True, "vllm 0.33, sglang 0.5, trtllm 1.0"),
        ({"name": "vllm", "version": "0.6"}, "speculative", NGRAM, "vllm 0.33"),
        *[({"name": name}, "speculative", NGRAM, "vllm 0.33") for name in ("sglang", "trtllm", "orca", "llama.cpp")],
        ({"name": "sglang"}, "watermark", 0.1, "vllm 0.33, sarathi"),
        ({"name": "sglang"}, "usage", "offline", "vllm 0.33"),
        ({"name": "trtllm"}, "scheduler_recv_interval", 3, "sglang 0.5"),
        ({"name": "orca"}, "prefix_caching", True, "vllm 0.33, sglang 0.5, trtllm 1.0, sarathi, llama.cpp"),
        ({"name": "static"}, "max_batched_tokens", 512, "vllm 0.33, sglang 0.5, trtllm 1.0, sarathi, llama.cpp"),
        ({"name": "sarathi"}, "cuda_graphs", False, "vllm 0.33, sglang 0.5"),
        ({"name": "llama.cpp"}, "gpu_memory_utilization", 0.5, SHARING),
    ],
)
def test_a_setting_of_another_engine_is_refused_with_those_that_have_it(engine, key, value, having):
    message = refusal({**engine, key: value})
    assert message.startswith(f"--set: engine.{key}: {engine['name']}")
    assert message.endswith(f"has no such setting\n  cure: leave it out; it is a setting of {having}")


def test_an_order_that_the_engine_does_not_know_is_refused():
    message = refusal({"name": "vllm", "version": "0.33", "policy": "lpm"})
    assert message == "--set: engine.policy: vllm 0.33 has no policy lpm\n  cure: use one of fcfs, priority"


@pytest.mark.parametrize(
    ("engine", "key"),
    [
        ({"name": "trtllm", "chunking_policy": "equal-progress"}, "chunking_policy"),
        ({"name": "sglang", "chunked_prefill": False, "mixed_chunk": True}, "mixed_chunk"),
        ({"name": "sglang", "priority_preemption": True}, "priority_preemption"),
    ],
)
def test_a_setting_that_another_makes_idle_is_refused(engine, key):
    assert refusal(engine).startswith(f"--set: engine.{key}: has no effect")


@pytest.mark.parametrize(
    ("engine", "key", "said"),
    [
        ({"name": "sglang", "policy": "shortest-prefill-first", "prefix_caching": False}, "policy", "which is off"),
        ({"name": "trtllm", "chunked_prefill": True, "max_batched_tokens": 16}, "max_batched_tokens", "block of 32"),
        ({"name": "trtllm", "chunked_prefill": True, "block_tokens": 9000}, "block_tokens", "step of 8,192 tokens"),
        ({"name": "llama.cpp", "max_sequences": 257}, "max_sequences", "no more than 256 slots"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_their_key(engine, key, said):
    message = refusal(engine)
    assert message.startswith(f"--set: engine.{key}: ")
    assert said in message


def test_a_pool_too_small_for_its_slots_says_so():
    """Six tokens for four slots are one token each: no prompt and its answer fit."""
    message = refusal({"name": "llama.cpp", "kv_blocks": 6})
    assert "engine.kv_blocks: the KV pool of 6 x 1 tokens, divided among 4 slots, holds no request at all" in message
    assert "use more KV blocks, or fewer max_sequences" in message


def test_sglang_cuts_chunks_into_whole_pages():
    assert "a chunk of 1,000 tokens is not a whole number of pages of 64" in refusal(
        {"name": "sglang", "block_tokens": 64, "max_batched_tokens": 1000}
    )


def test_vllm_v0_refuses_a_step_shorter_than_the_longest_prompt():
    engine = {**ENGINES["vllm_v0"], "max_model_len": 8192, "max_batched_tokens": 4096}
    assert "without chunked prefill a step must take a whole prompt" in refusal(engine)


def test_vllm_v0_counts_chunks_in_whole_blocks_where_it_caches():
    engine = {**ENGINES["vllm_v0"], "prefix_caching": True, "max_batched_tokens": 1000}
    assert "1,000 tokens must be whole blocks of 16" in refusal(engine)


@pytest.mark.parametrize(("chunked", "rejected"), [(False, 10), (True, 0)])
def test_trtllm_takes_no_prompt_above_its_budget_unless_it_chunks(chunked, rejected):
    """Ten prompts of 3,000 tokens; a step takes 2,048."""
    engine = {"name": "trtllm", "max_batched_tokens": 2048, "chunked_prefill": chunked}
    found = summary(engine, **{"traffic.requests": 10, "traffic.prompt_tokens": 3000})
    assert (found["requests"]["rejected"], found["requests"]["completed"]) == (rejected, 10 - rejected)
    reason = "without chunked prefill the prompt must fit max_batched_tokens, 2,048"
    assert found["rejections"] == ({reason: 10} if rejected else {})


def test_llama_cpp_divides_its_context_between_slots():
    """16,384 tokens for four slots; a longer request is not taken in."""
    found = summary({"name": "llama.cpp", "kv_blocks": 16_384})
    assert found["kv"]["capacity_tokens"] == 16_384
    assert found["engine"]["settings"]["max_model_len"] == 4096
    why = {entry["what"]: entry["why"] for entry in found["assumed"]}
    assert why["engine.max_model_len"] == "one slot's part of the KV pool"


@pytest.mark.parametrize(("name", "said"), [("sglang", "free before"), ("trtllm", "leave free"), ("orca", "device's")])
def test_the_kv_pool_is_explained_by_the_engines_own_rule(name, said):
    assumed = {entry["what"]: entry["why"] for entry in summary(ENGINES[name])["assumed"]}
    assert said in assumed["KV cache"]


def test_no_other_engine_keeps_a_null_block():
    """One hundred blocks of 16 hold one request of 1,600 tokens; vLLM V1 keeps one for itself."""
    engine = {"kv_blocks": 100, "block_tokens": 16}
    assert summary({"name": "vllm", **engine})["engine"]["settings"]["max_model_len"] == 1584
    for name in ("sglang", "trtllm", "orca", "sarathi"):
        assert summary({"name": name, **engine})["engine"]["settings"]["max_model_len"] == 1600


@pytest.mark.parametrize(("name", "blocks"), [("trtllm", 5), ("orca", 160), ("static", 160), ("sglang", 160)])
@pytest.mark.parametrize("cap", [5, 200])
def test_no_engine_reserves_more_than_the_pool_holds(name, blocks, cap):
    """160 tokens of a model with windows, which make 192 of one request as cheap: max_model_len, not the pool's length.

    An answer of up to 200 tokens would need more blocks than there are, and block its engine for ever.
    """
    load = {"traffic.requests": 30, "traffic.prompt_tokens": 16, "traffic.output_tokens": 5}
    engine = {"name": name, "kv_blocks": blocks}
    found = summary(engine, model="gpt-oss-20b", **load, **{"traffic.max_output_tokens": cap})
    assert found["kv"]["capacity_tokens"] == 160
    assert found["requests"]["completed"] == 30
    assert found["engine"]["settings"]["max_model_len"] >= 160
