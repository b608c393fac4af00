"""What an engine decides where the scenario says nothing."""

import pytest

from sim.engine import rules_for, settings_for
from sim.engine.schedulers import SCHEDULERS
from sim.engine.versions import RECORDS, SPECIFIC_SETTINGS, Device
from sim.scenario.specs import EngineSpec

GIB = 2**30
EVERYWHERE = {"name", "version", "weight_dtype", "kv_dtype", "max_sequences", "max_model_len", "block_tokens"}
EVERYWHERE |= {"kv_blocks"}


def resolved(name, version=None, memory_gib=80, model_tokens=131_072, tensor_parallel=1, seed=0, **knobs):
    rules = rules_for(name, version)
    return settings_for(
        rules,
        EngineSpec(name=name, **knobs),
        memory_bytes=memory_gib * GIB,
        device_name="a device",
        max_model_len=model_tokens,
        tensor_parallel=tensor_parallel,
        seed=seed,
    )


def test_every_key_of_an_engine_belongs_to_some_scheduler():
    """None is accepted that no scheduler would read."""
    assert set(EngineSpec.model_fields) - EVERYWHERE == SPECIFIC_SETTINGS
    for records in RECORDS.values():
        assert all(rules.scheduler in SCHEDULERS for rules in records)


@pytest.mark.parametrize(
    ("memory_gib", "ranks", "tokens", "fraction", "graph"),
    [
        (16, 1, 2048, 0.772, 8),
        (24, 1, 4096, 0.720, 48),
        (48, 1, 4096, 0.861, 32),
        (80, 1, 8192, 0.836, 256),
        (80, 4, 8192, 0.825, 512),
        (80, 1, 1024, 0.875, 256),
        (192, 1, 16384, 0.867, 512),
    ],
)
def test_sglangs_share_of_memory(memory_gib, ranks, tokens, fraction, graph):
    """512 MiB + 1.5 per token (of 2,048 at least) + 2 per sequence of the largest graph + 128 per GPU stay free, and
    10 GiB at least on large devices: 80 GiB keep 512 + 12,288 + 512 + 128 = 13,440 of 81,920 MiB.
    """
    rules, device = rules_for("sglang", None), Device(memory_gib * GIB, "a device", ranks)
    assert rules.largest_graph(device) == graph
    assert rules.static_fraction(device, tokens) == fraction


@pytest.mark.parametrize(("memory_gib", "tokens"), [(16, 2048), (24, 4096), (48, 4096), (80, 8192), (192, 16384)])
def test_sglangs_chunk_follows_the_memory(memory_gib, tokens):
    result = resolved("sglang", memory_gib=memory_gib)
    settings = result.settings
    assert (settings.max_batched_tokens, settings.max_prefill_tokens, settings.block_tokens) == (tokens, 16384, 1)
    assert (settings.policy, settings.async_scheduling, settings.prefix_caching) == ("fcfs", True, True)


def test_sglangs_graphs_end_at_the_largest_batch_of_the_device():
    assert resolved("sglang", memory_gib=24).graph_sizes[-1] == 48
    assert resolved("sglang", tensor_parallel=4).graph_sizes[-1] == 512


def test_sglang_without_chunks_keeps_memory_for_a_whole_prefill_batch():
    """512 + 1.5 x 16,384 + 512 + 128 of 81,920 MiB."""
    assert resolved("sglang", chunked_prefill=False).gpu_memory_utilization == round(1 - 25_728 / 81_920, 3)


def test_what_the_user_says_goes_before_sglangs_formula():
    result = resolved("sglang", seed=7, gpu_memory_utilization=0.6, scheduler_recv_interval=10, policy="random")
    assert result.gpu_memory_utilization == 0.6
    assert (result.settings.recv_interval, result.settings.seed) == (10, 7)
    assert {"scheduler_recv_interval", "policy"}.isdisjoint(result.defaults_taken)
    assert "recv_interval" not in result.defaults_taken


def test_trtllm():
    result = resolved("trtllm")
    settings = result.settings
    assert (settings.max_batched_tokens, settings.max_sequences, settings.block_tokens) == (8192, 2048, 32)
    assert (settings.chunked_prefill, settings.prefix_caching) == (False, True)
    assert (settings.capacity_policy, settings.chunking_policy) == ("guaranteed-no-evict", "fcfs")
    assert (result.gpu_memory_utilization, result.graph_sizes) == (0.9, ())


@pytest.mark.parametrize(
    ("length", "chunked", "tokens"),
    [(1024, False, 2048), (8192, False, 8192), (32_768, False, 32_768), (32_769, True, 2048), (131_072, True, 2048)],
)
def test_vllm_v0_chunks_where_contexts_are_long(length, chunked, tokens):
    settings = resolved("vllm", "0.6", model_tokens=length).settings
    assert (settings.chunked_prefill, settings.max_batched_tokens) == (chunked, tokens)
    assert (settings.max_sequences, settings.prefix_caching, settings.watermark) == (256, False, 0.01)


def test_vllm_v0_chunks_if_told_to():
    assert resolved("vllm", "0.6", model_tokens=8192, chunked_prefill=True).settings.max_batched_tokens == 2048


@pytest.mark.parametrize(("name", "block"), [("orca", 1), ("static", 1), ("sarathi", 16)])
def test_papers(name, block):
    result = resolved(name)
    assert (result.settings.max_sequences, result.settings.block_tokens) == (128, block)
    assert (result.settings.prefix_caching, result.settings.async_scheduling) == (False, False)


def test_sarathis_chunk_and_watermark():
    settings = resolved("sarathi").settings
    assert (settings.max_batched_tokens, settings.watermark, settings.chunked_prefill) == (512, 0.01, True)


def test_defaults_that_nobody_can_change_are_not_reported_as_choices():
    assert set(resolved("orca").defaults_taken) == {"max_sequences", "max_model_len", "block_tokens"}


@pytest.mark.parametrize(
    ("knobs", "cells"), [({}, 131_072), ({"max_model_len": 4096}, 16_384), ({"max_sequences": 2}, 131_072)]
)
def test_llama_cpps_context_is_the_models_unless_that_of_a_slot_is_given(knobs, cells):
    """Four slots of 4,096 tokens make 16,384."""
    assert resolved("llama.cpp", **knobs).most_kv_blocks == cells
