"""One block pool for full and sliding layers, as vLLM groups them."""

import pytest

import sim
from sim.cost.memory import GIB, kv_capacity
from sim.hardware import load_profile
from sim.models import load_model
from sim.models.memory import kv_bytes_per_request, kv_groups
from sim.parallel import Parallelism


@pytest.mark.parametrize(
    ("model", "windows", "layers"),
    [
        ("llama-3.1-8b", (None,), 32),
        ("gpt-oss-120b", (None, 128), 18),
        ("gemma-2-9b", (None, 4096), 21),
        ("gemma-3-4b", (None, *[1024] * 6), 5),
        ("gemma-3-27b", (None, *[1024] * 6), 10),
        ("llama-4-scout", (None, *[8192] * 3), 12),
    ],
)
def test_layers_are_cut_by_the_rarer_kind(model, windows, layers):
    """gemma-3-27b has 10 full layers and 52 sliding ones: seven tables of ten layers, the last one padded."""
    groups = kv_groups(load_model(model))
    assert (groups.windows, groups.layers) == (windows, layers)


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3.5-27b", "nemotron-h-56b", "gemma-4-26b-a4b"])
def test_layers_of_unequal_size_are_not_grouped(model):
    assert kv_groups(load_model(model)) is None


def capacity(model, **changes):
    arguments = {
        "parallel": Parallelism(),
        "kv_dtype": "auto",
        "block_tokens": 16,
        "request_tokens": 4096,
        "gpu_memory_utilization": 0.9,
        "max_batched_tokens": 8192,
        "max_sequences": 256,
        "graphs_counted": True,
        "share": "of-device",
        "reserved_blocks": 1,
        "window_groups": True,
    }
    return kv_capacity(load_model(model), load_profile("h100-sxm"), **{**arguments, **changes})


def test_a_block_costs_what_one_group_of_layers_caches():
    """hf-mem#61, gpt-oss-120b: 18 layers of 2,048 B per token, so 5.38 GiB are 9,794 blocks; vLLM's log counts tokens
    as blocks x 16 / 2 tables: 78,384, from the unrounded GiB."""
    pool = capacity("gpt-oss-120b")
    assert pool.bytes_per_block == 18 * 2048 * 16
    blocks = 5.38 * GIB // pool.bytes_per_block
    assert blocks * 16 / len(pool.groups) == pytest.approx(78_384, rel=1e-3)


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gemma-2-9b", "gemma-3-4b"])
def test_the_pool_holds_as_many_mean_requests_as_their_bytes_say(model):
    """Within the padding of the last group and of the last block of each window."""
    pool = capacity(model)
    requests = pool.tokens / pool.request_tokens
    by_bytes = pool.blocks * pool.bytes_per_block / kv_bytes_per_request(load_model(model), pool.request_tokens)
    assert 0.85 < requests / by_bytes <= 1.001


def test_long_requests_are_charged_for_what_they_hold():
    """gemma-3-27b: a request of 60,000 tokens holds 3,750 blocks of the full table and little of the sliding ones."""
    scenario = {
        "model": "gemma-3-27b",
        "hardware": "h200-sxm",
        "traffic": {"arrivals": {"process": "burst"}, "requests": 1, "prompt_tokens": 60_000, "output_tokens": 8},
    }
    result = sim.run(scenario)
    used = result.steps.kv_blocks_used
    window_blocks = 1024 // 16 + 1
    batch_blocks = 8192 // 16
    assert result.summary["requests"]["completed"] == 1
    assert 3750 < used.max() <= 3750 + 6 * (window_blocks + 2 * batch_blocks) + 2


def test_windows_take_part_in_preemption_and_all_is_given_back():
    scenario = {
        "model": "gpt-oss-20b",
        "hardware": "h100-sxm",
        "engine": {"kv_blocks": 2600, "max_model_len": 8000},
        "traffic": {
            "arrivals": {"process": "poisson", "rate": 40},
            "requests": 200,
            "prompt_tokens": {"distribution": "lognormal", "mean": 800, "p99": 4000, "high": 6000},
            "output_tokens": {"distribution": "lognormal", "mean": 100, "p99": 400},
        },
    }
    result = sim.run(scenario)
    assert (result.requests.status == "completed").all()
    assert result.summary["preemptions"] > 0
    assert result.steps.kv_blocks_used.iloc[-1] == 0
    assert result.steps.kv_blocks_used.max() <= 2599
