"""KV capacity: a budget whose terms sum, blocks that follow from it, and refusals with the way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import KvCapacity, kv_capacity, longest_request_tokens
from sim.cost.memory import GIB, activation_bytes, kv_budget
from sim.errors import DoesNotFit
from sim.hardware import HardwareProfile, load_profile
from sim.hardware.collectives import most_devices
from sim.models import abstract_model, load_model, preset_names, with_weight_dtype
from sim.models.memory import kv_bytes_per_request, weight_bytes
from sim.models.spec import ModelSpec
from sim.parallel import Parallelism

H100 = load_profile("h100-sxm")
BUDGET: dict[str, Any] = {
    "gpu_memory_utilization": 0.9,
    "max_batched_tokens": 8192,
    "max_sequences": 1024,
    "graphs_counted": True,
    "share": "of-device",
}
VLLM: dict[str, Any] = {"reserved_blocks": 1, "window_groups": True}


def capacity(model: ModelSpec, profile: HardwareProfile = H100, **kwargs: Any) -> KvCapacity:
    settled = {
        "parallel": Parallelism(),
        "kv_dtype": "auto",
        "block_tokens": 16,
        "request_tokens": 1_024,
        **BUDGET,
        **VLLM,
        **kwargs,
    }
    found = kv_capacity(model, profile, **settled)
    assert found is not None
    return found


def with_kv_bytes(model: ModelSpec, kv_bytes: float) -> HardwareProfile:
    """An H100 with just so much memory left for KV."""
    taken = kv_budget(model, replace(H100, memory_bytes=0), parallel=Parallelism(tensor=1), **BUDGET).kv_bytes
    return replace(H100, memory_bytes=round((kv_bytes - taken) / BUDGET["gpu_memory_utilization"]) + 1)


@settings(deadline=None)
@given(st.sampled_from(preset_names()), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.floats(0.1, 1.0))
def test_terms_sum(name: str, ranks: int, graphs: bool, utilization: float) -> None:
    given_ = {**BUDGET, "graphs_counted": graphs, "gpu_memory_utilization": utilization}
    budget = kv_budget(load_model(name), H100, parallel=Parallelism(tensor=ranks), **given_)
    terms = budget.weight_bytes + budget.activation_bytes + budget.graph_bytes + budget.framework_bytes
    assert budget.kv_bytes + terms == pytest.approx(budget.usable_bytes)
    assert budget.usable_bytes == H100.memory_bytes * utilization
    assert (budget.graph_bytes > 0) == graphs
    assert min(budget.activation_bytes, budget.framework_bytes) > 0


def test_blocks_are_what_fits_of_the_budget() -> None:
    found = capacity(load_model("llama-3.1-8b"))
    assert found.budget is not None
    assert found.bytes_per_block == 16 * 131_072
    assert found.blocks * found.bytes_per_block <= found.budget.kv_bytes < (found.blocks + 1) * found.bytes_per_block
    assert found.tokens == 16 * found.blocks
    assert found.uniform


def test_llama_3_8b_on_an_h100_as_in_the_engines_log() -> None:
    """vllm-project/vllm#10511: 71.29 GiB usable, 14.96 of weights, 53.29 for KV (436 thousand tokens), within 5 %."""
    found = capacity(load_model("llama-3-8b"), graphs_counted=False, max_sequences=256)
    assert found.budget is not None
    assert found.budget.usable_bytes / GIB == pytest.approx(71.29, abs=0.05)
    assert round(found.budget.weight_bytes / GIB, 2) == 14.96
    assert found.budget.kv_bytes / GIB == pytest.approx(53.29, rel=0.05)
    assert found.tokens == pytest.approx(53.29 * GIB / 131_072, rel=0.05)


def test_case_3_as_in_the_engines_log() -> None:
    """vllm-project/vllm#10517: 3.81 GiB are 1,952 blocks of 16, 31,232 tokens, 1.56 requests of 20,000."""
    model = load_model("llama-3.1-8b")
    found = capacity(model, with_kv_bytes(model, 3.8125 * GIB))
    assert found.budget is not None
    assert round(found.budget.kv_bytes / GIB, 2) == 3.81
    assert (found.blocks, found.tokens) == (1_952, 31_232)
    assert round(found.tokens / 20_000, 2) == 1.56


def test_case_33_fp8_kv_doubles_the_blocks() -> None:
    """vllm-project/vllm#25350: 26,312 blocks become 52,625 (2.000 x)."""
    model = load_model("llama-3.1-8b")
    profile = with_kv_bytes(model, 26_312.5 * 16 * 131_072)
    assert capacity(model, profile).blocks == 26_312
    assert capacity(model, profile, kv_dtype="fp8").blocks == 52_625
    assert capacity(with_weight_dtype(model, "fp8"), profile).bytes_per_block == 16 * 131_072


def test_graphs_count_only_where_the_engine_counts_them() -> None:
    model = load_model("llama-3.1-8b")
    assert capacity(model, graphs_counted=False).blocks > capacity(model).blocks


def test_more_gpus_than_kv_heads_add_no_capacity_per_token() -> None:
    """tenstorrent/vllm#50: 4 KV heads, 8 ranks."""
    four, eight = (capacity(load_model("qwen3-235b-a22b"), parallel=Parallelism(tensor=n), kv_blocks=9) for n in (4, 8))
    assert four.bytes_per_block == eight.bytes_per_block == 16 * 48_128


def test_windows_hold_more_tokens_of_longer_requests() -> None:
    """A request of 128 tokens fills both block tables; of one of 65,536 the windowed table holds nearly nothing."""
    model = load_model("gpt-oss-120b")
    profile = load_profile("h200-sxm")
    short, long = (capacity(model, profile, request_tokens=tokens) for tokens in (128, 65_536))
    assert short.blocks == long.blocks
    assert short.tokens == pytest.approx(short.blocks * 16 / 2, rel=1e-3)
    assert long.tokens == pytest.approx(long.blocks * 16 / (1 + 9 / 4096), rel=1e-3)
    assert not long.uniform


def test_fixed_states_count_per_request() -> None:
    model = load_model("qwen3-next-80b-a3b")
    found = capacity(model, parallel=Parallelism(tensor=4), request_tokens=1_000)
    assert found.bytes_per_block == pytest.approx(kv_bytes_per_request(model, 1_000, 4) * 16 / 1_000)
    assert not found.uniform


def test_a_given_number_of_blocks_is_taken() -> None:
    """Even where the model would not fit: the scenario says so."""
    found = capacity(load_model("llama-3.1-405b"), kv_blocks=500)
    assert (found.blocks, found.tokens, found.budget) == (500, 8_000, None)


def test_too_large_a_model_says_by_how_much_and_what_fits() -> None:
    """Llama-3.1-70B in 16 bits: 131.4 GiB of weights on 79.2 GiB."""
    with pytest.raises(DoesNotFit) as caught:
        capacity(load_model("llama-3.1-70b"))
    assert "does not fit on 1 x h100-sxm" in caught.value.problem
    assert "weights take 131.4" in caught.value.problem
    assert "GiB too much" in caught.value.problem
    assert caught.value.cure == "use tensor_parallel: 2"
    assert capacity(load_model("llama-3.1-70b"), parallel=Parallelism(tensor=2)).tokens > 5_000


def test_a_model_that_no_node_holds_is_told_of_a_pipeline_of_nodes() -> None:
    """Two nodes hold 405B in 16 bits; without a network there is no second one."""
    model, eight = load_model("llama-3.1-405b"), Parallelism(tensor=8)
    with pytest.raises(DoesNotFit) as caught:
        capacity(model, parallel=eight)
    assert caught.value.cure == "use tensor_parallel: 8, pipeline_parallel: 2"
    assert capacity(model, parallel=Parallelism(tensor=8, pipeline=2)).tokens > 5_000
    with pytest.raises(DoesNotFit) as caught:
        capacity(model, replace(H100, network_bytes_per_s=None), parallel=eight)
    assert "no parallelism that the links of h100-sxm join is enough" in caught.value.cure
    assert "weight_dtype" in caught.value.cure


def test_a_device_without_links_is_told_nothing_of_parallelism() -> None:
    profile = load_profile("apple-m3-max")
    assert most_devices(profile) == 1
    with pytest.raises(DoesNotFit, match="no parallelism"):
        capacity(load_model("llama-3.1-405b"), profile)


@settings(deadline=None, max_examples=40)
@given(st.floats(-3.0, 0.0039))
def test_a_shortfall_is_never_negative(room_gib: float) -> None:
    """Fewer than two blocks (one is the null block) are too few; what is missing is more than nothing."""
    model = load_model("llama-3.1-8b")
    with pytest.raises(DoesNotFit) as caught:
        capacity(model, with_kv_bytes(model, room_gib * GIB - 16))
    said = caught.value.problem.rpartition(": ")[2]
    assert said == "no room is left for KV blocks" or float(said.removesuffix(" GiB too much")) > 0


def test_an_abstract_model_needs_room_for_its_weights_alone() -> None:
    settled = {"kv_dtype": "auto", "block_tokens": 16, "request_tokens": 100, **BUDGET, **VLLM}
    assert kv_capacity(abstract_model(8e9, "fp16"), H100, parallel=Parallelism(tensor=1), **settled) is None
    with pytest.raises(DoesNotFit, match=r"130\.4 GiB for weights, and h100-sxm offers 71\.3 GiB") as caught:
        kv_capacity(abstract_model(70e9, "fp16"), H100, parallel=Parallelism(tensor=1), **settled)
    assert caught.value.cure == "use tensor_parallel: 2"
    with pytest.raises(DoesNotFit) as caught:
        kv_capacity(
            abstract_model(300e9, "fp16"), load_profile("apple-m3-max"), parallel=Parallelism(tensor=1), **settled
        )
    assert "tensor_parallel" not in caught.value.cure


def test_activations_by_hand() -> None:
    """The MLP's three widths and three hidden states over the token budget; or the logits of a full batch."""
    model = load_model("llama-3.1-8b")
    assert activation_bytes(model, Parallelism(tensor=1), 8_192, 1) == 8_192 * (3 * 14_336 + 3 * 4_096) * 2
    assert activation_bytes(model, Parallelism(tensor=2), 8_192, 1) == 8_192 * (3 * 14_336 / 2 + 3 * 4_096) * 2
    assert activation_bytes(model, Parallelism(tensor=1), 16, 1_024) == 1_024 * 128_256 * 10


def test_longest_request_leaves_the_null_block_out() -> None:
    model = load_model("llama-3.1-8b")
    assert longest_request_tokens(model, capacity(model, kv_blocks=101), Parallelism(), "auto") == 1_600


@pytest.mark.parametrize("name", ["gpt-oss-120b", "qwen3-next-80b-a3b", "gemma-3-27b", "glm-5"])
def test_longest_request_fits_and_one_more_token_does_not(name: str) -> None:
    model = load_model(name)
    found = capacity(model, kv_blocks=4_000)
    longest, room = longest_request_tokens(model, found, Parallelism(), "auto"), 3_999 * found.bytes_per_block
    assert kv_bytes_per_request(model, longest) <= room < kv_bytes_per_request(model, longest + 1)


def test_packed_models_keep_their_real_weights() -> None:
    """Case 20: 65.2 GB of gpt-oss-120b fit one H100; at four bits throughout or eight they would not be told apart."""
    model = load_model("gpt-oss-120b")
    found = capacity(model, graphs_counted=False)
    assert found.budget is not None
    assert found.budget.weight_bytes == weight_bytes(model) == 65_248_815_744


def test_a_share_of_what_is_free_before_loading_holds_weights_and_kv() -> None:
    """SGLang: activations and graphs live in the rest."""
    model, settled = load_model("llama-3.1-8b"), {**BUDGET, "share": "of-free-before-load"}
    budget = kv_budget(model, H100, parallel=Parallelism(tensor=1), **settled)
    free = H100.memory_bytes - budget.framework_bytes
    assert budget.kv_bytes == pytest.approx(0.9 * free - budget.weight_bytes)
    assert (budget.activation_bytes, budget.graph_bytes) == (0, 0)


def test_a_share_of_what_is_free_after_loading_is_kv_alone() -> None:
    """TensorRT-LLM: a tenth of what is left stays free, however large the weights are."""
    model, settled = load_model("llama-3.1-8b"), {**BUDGET, "graphs_counted": False, "share": "of-free-after-load"}
    budget = kv_budget(model, H100, parallel=Parallelism(tensor=1), **settled)
    taken = budget.weight_bytes + budget.activation_bytes + budget.framework_bytes
    assert budget.kv_bytes == pytest.approx(0.9 * (H100.memory_bytes - taken))


def test_a_model_too_large_has_nothing_free_to_share() -> None:
    """131.4 GiB of weights on 79.2 GiB: the shortfall is all of it, not a share."""
    model, settled = load_model("llama-3.1-70b"), {**BUDGET, "share": "of-free-after-load"}
    budget = kv_budget(model, H100, parallel=Parallelism(tensor=1), **settled)
    assert budget.usable_bytes == H100.memory_bytes
    with pytest.raises(DoesNotFit, match="of what the weights leave free"):
        capacity(model, share="of-free-after-load")


def test_without_a_null_block_one_block_is_a_pool() -> None:
    model = load_model("llama-3.1-8b")
    one = with_kv_bytes(model, 1.5 * 16 * 131_072)
    found = capacity(model, one, reserved_blocks=0)
    assert (found.blocks, found.usable_blocks, longest_request_tokens(model, found, Parallelism(), "auto")) == (
        1,
        1,
        16,
    )
    with pytest.raises(DoesNotFit):
        capacity(model, one)


def test_an_engine_may_want_less_than_fits() -> None:
    model = load_model("llama-3.1-8b")
    assert capacity(model, most_blocks=500).blocks == 500
    assert capacity(model, most_blocks=10**6).blocks == capacity(model).blocks


def test_without_shared_tables_a_block_costs_what_it_costs_the_mean_request() -> None:
    """Most layers of Gemma-3-27b keep 1,024 tokens: a block costs a long request less than a short one."""
    model = load_model("gemma-3-27b")
    short, long = (
        capacity(model, parallel=Parallelism(tensor=2), request_tokens=tokens, window_groups=False)
        for tokens in (128, 8192)
    )
    assert short.groups == long.groups == (None,)
    assert long.bytes_per_block == pytest.approx(kv_bytes_per_request(model, 8192, 2) * 16 / 8192)
    assert long.blocks > short.blocks
