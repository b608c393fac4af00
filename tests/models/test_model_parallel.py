"""Which parallelism a model can have, and what a GPU holds under it."""

from __future__ import annotations

import pytest

from sim.errors import UnsupportedModel
from sim.models import describe, load_model
from sim.models.memory import share_of_experts, weight_bytes_per_gpu
from sim.models.parallel import check_parallelism
from sim.models.spec import MoeFfn
from sim.parallel import Parallelism


def test_data_parallel_ranks_hold_all_but_the_experts() -> None:
    """Qwen3-30B-A3B: 48 layers of 128 experts with 3 x 2048 x 768 weights of 2 bytes.

    2 ranks save half of the experts each, whole ones or halves of all; 2 x 2 GPUs hold a quarter of them.
    """
    model = load_model("qwen3-30b-a3b")
    routed = 48 * 128 * 3 * 2_048 * 768 * 2
    whole = weight_bytes_per_gpu(model)
    for expert in (1, 2):
        assert weight_bytes_per_gpu(model, Parallelism(data=2, expert=expert)) == whole - routed / 2
    rest = weight_bytes_per_gpu(model, Parallelism(tensor=2)) - routed / 2
    assert weight_bytes_per_gpu(model, Parallelism(tensor=2, data=2, expert=2)) == rest + routed / 4


def test_experts_that_do_not_divide() -> None:
    """128 experts in 3 shares: 43, 43 and 42."""
    ffn = load_model("qwen3-30b-a3b").layers[0].ffn
    assert isinstance(ffn, MoeFfn)
    assert share_of_experts(ffn, 3) == 43


@pytest.mark.parametrize(
    ("model", "parallel", "problem", "cure"),
    [
        ("llama-3.1-8b", Parallelism(data=4), "has no experts", "replicas: 4"),
        ("llama-3.1-8b", Parallelism(tensor=2, expert=2), "has no experts to split", "use 1"),
        ("llama-3.1-8b", Parallelism(tensor=3), "does not divide the 32", "1, 2, 4, 8"),
        ("llama-3.1-8b", Parallelism(pipeline=33), "more than the 32 layers", "at most 32"),
        ("deepseek-v3", Parallelism(tensor=8, expert=3), "does not divide .* = 8", "1, 2, 4, 8"),
        ("deepseek-v3", Parallelism(tensor=2, data=4, expert=16), "does not divide .* = 8", "1, 2, 4, 8"),
        ("mixtral-8x7b", Parallelism(tensor=2, data=8, expert=16), "more than the experts", "1, 2, 4, 8"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_what_can(model: str, parallel: Parallelism, problem: str, cure: str) -> None:
    with pytest.raises(UnsupportedModel, match=problem) as caught:
        check_parallelism(load_model(model), parallel)
    assert cure in caught.value.cure


def test_the_summary_tells_of_the_worst_gpu() -> None:
    """DeepSeek-V3 on 16 GPUs, its latent on every one: (512 + 64) x 2 bytes x 61 layers per token."""
    parallel = Parallelism(tensor=2, data=8, expert=16)
    per_gpu = describe("deepseek-v3", parallel=parallel)["per_gpu"]
    assert (per_gpu["data_parallel"], per_gpu["expert_parallel"]) == (8, 16)
    assert per_gpu["kv_bytes_per_token"] == 576 * 2 * 61
    assert per_gpu["weight_bytes"] == weight_bytes_per_gpu(load_model("deepseek-v3"), parallel)
