"""What attention reads in a step: the bytes that capacity counts, and none twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.cost import RooflineCost
from sim.hardware import load_profile
from sim.models import load_model
from sim.models.memory import windows
from sim.parallel import Parallelism
from sim.work import StepWork

H100 = load_profile("h100-sxm")
Make = Callable[..., StepWork]


def calibrated(name: str, *, tensor_parallel: int = 1, kv_dtype: str = "auto") -> RooflineCost:
    return RooflineCost(load_model(name), H100, parallel=Parallelism(tensor=tensor_parallel), kv_dtype=kv_dtype)


def bytes_of(cost: RooflineCost, work: StepWork, name: str) -> list[float]:
    return [operator.hbm_bytes for operator in cost.operators(work) if operator.name == name]


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b", "mimo-v2-flash", "deepseek-v3", "qwen3.5-27b"]
)
def test_windows_stop_growing(make_work: Make, name: str) -> None:
    """Only layers that see every token read more for a longer context."""
    model, longest = load_model(name), max(windows(load_model(name)), default=0)
    cost = calibrated(name)
    long, longer = (decode_bytes(cost, make_work(name, [longest + extra])) for extra in (1, 100_001))
    for layer_bytes, grown in zip(long, longer, strict=True):
        assert grown >= layer_bytes
    still = sum(grown == layer_bytes for layer_bytes, grown in zip(long, longer, strict=True))
    kinds = {layer.attention for layer in model.layers}
    assert still == sum(getattr(kind, "window_tokens", None) is not None for kind in kinds)


def decode_bytes(cost: RooflineCost, work: StepWork) -> list[float]:
    return bytes_of(cost, work, "decode attention")


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2-lite", "glm-5"])
def test_latent_bytes_do_not_depend_on_ranks(make_work: Make, name: str) -> None:
    """inference-sim#1527: every rank reads the whole latent."""
    work = make_work(name, [4_000, 9_000])
    one, two, eight = (decode_bytes(calibrated(name, tensor_parallel=ranks), work) for ranks in (1, 2, 8))
    assert one == two == eight


def test_latent_bytes_per_layer_and_token(make_work: Make) -> None:
    """inference-sim#1712: 1,152 bytes, 61 layers, and the reads that capacity counts."""
    assert decode_bytes(calibrated("deepseek-v3"), make_work("deepseek-v3", [1_000])) == [61 * 1_152 * 1_000]


def test_sparse_attention_reads_its_best_tokens_and_all_index_keys(make_work: Make) -> None:
    """DeepSeek-V3.2: 2,048 latents of 1,152 bytes, and 132 bytes of every token."""
    cost = calibrated("deepseek-v3.2")
    assert decode_bytes(cost, make_work("deepseek-v3.2", [1_000])) == [61 * 1_000 * (1_152 + 132)]
    assert decode_bytes(cost, make_work("deepseek-v3.2", [50_000])) == [61 * (2_048 * 1_152 + 50_000 * 132)]


def test_layers_that_share_an_index_read_none_of_its_keys(make_work: Make) -> None:
    """GLM-5.2 indexes in 21 of 78 layers."""
    read = decode_bytes(calibrated("glm-5.2"), make_work("glm-5.2", [50_000]))
    assert sum(read) == 78 * 2_048 * 1_152 + 21 * 50_000 * 132


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3"])
def test_fp8_kv_halves_what_decodes_read(make_work: Make, name: str) -> None:
    work = make_work(name, [4_000, 90])
    half, whole = (decode_bytes(calibrated(name, kv_dtype=dtype), work) for dtype in ("fp8", "bf16"))
    assert [2 * read for read in half] == whole


def test_grouped_reads_fall_with_ranks_until_heads_replicate(make_work: Make) -> None:
    """tenstorrent/vllm#50: four KV heads on four ranks and on eight, one head each."""
    work = make_work("qwen3-30b-a3b", [4_000])
    two, four, eight = (decode_bytes(calibrated("qwen3-30b-a3b", tensor_parallel=n), work)[0] for n in (2, 4, 8))
    assert (two, four) == (2 * eight, eight)


def test_state_of_a_linear_layer_is_read_and_written_once(make_work: Make) -> None:
    """23 Mamba layers of 1,085,440 bytes, whatever the context."""
    for contexts in ([10, 10], [90_000, 10]):
        work = make_work("nemotron-3-nano-30b-a3b", contexts)
        scans = bytes_of(calibrated("nemotron-3-nano-30b-a3b"), work, "mamba2 scan")
        assert scans == [2 * 2 * 23 * (36_864 + 1_048_576)]
