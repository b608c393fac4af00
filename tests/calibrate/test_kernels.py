"""Work of the kernels by hand, and what the plan holds."""

from __future__ import annotations

import pytest

from calibrate.kernels import FULL, QUICK, DecodeAttention, Gemm, PrefillAttention, plan


def test_a_product_multiplies_and_adds_and_reads_its_weights():
    kernel = Gemm(dtype="bf16", tokens=2, depth=3, columns=5)
    assert (kernel.flops, kernel.cold_bytes, kernel.warm_bytes) == (60, 30, 32)


def test_decode_attention_reads_every_key_and_value_once():
    """4 FLOPs per query head, context token and channel; one KV head serves four query heads."""
    kernel = DecodeAttention(dtype="bf16", sequences=2, heads=8, kv_heads=2, head_dim=64, context_tokens=100)
    assert kernel.cold_bytes == 2 * 2 * 100 * 2 * 64 * 2
    assert kernel.flops == 4 * 2 * 8 * 64 * 100


def test_prefill_attention_counts_the_causal_half():
    kernel = PrefillAttention(dtype="bf16", sequences=1, heads=1, head_dim=1, tokens=4)
    assert kernel.flops == 4 * (1 + 2 + 3 + 4)


@pytest.mark.parametrize("grid", [QUICK, FULL], ids=["quick", "full"])
def test_no_shape_is_both_fitted_and_held_out(grid):
    kernels = plan(grid, ["fp32", "bf16", "int8"], 2**28)
    assert len({kernel.label for kernel in kernels}) == len(kernels)
    for family in ("gemm", "decode_attention", "prefill_attention"):
        held_out = [kernel.held_out for kernel in kernels if kernel.family == family]
        assert 3 <= sum(held_out) < len(held_out) / 2


def test_attention_runs_in_the_16_bit_dtype_there_is():
    kernels = plan(QUICK, ["fp32", "fp16"], 2**28)
    assert {kernel.dtype for kernel in kernels if "attention" in kernel.family} == {"fp16"}


def test_int8_products_start_where_torch_has_them():
    kernels = [kernel for kernel in plan(FULL, ["bf16", "int8"], 2**28) if kernel.dtype == "int8"]
    assert min(kernel.tokens for kernel in kernels if isinstance(kernel, Gemm)) == 32
