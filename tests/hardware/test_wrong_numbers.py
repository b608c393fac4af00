"""Figures that other tools got wrong, by the issue that reported them."""

from __future__ import annotations

import pytest

from sim.hardware import load_profile, profile_names

DENSE = [
    pytest.param("l40s", "fp8", 733e12, id="inference-sim#1738-l40s-fp8-is-not-1466"),
    pytest.param("l40s", "bf16", 362.05e12, id="inference-sim#1738-l40s-bf16"),
    pytest.param("h100-sxm", "bf16", 989.4e12, id="pytorch-lightning#21743-h100-bf16-is-not-1979"),
    pytest.param("h200-sxm", "bf16", 989.4e12, id="pytorch#182023-h200-bf16-is-not-1979"),
    pytest.param("h100-pcie", "bf16", 756.5e12, id="OLMo-core#614-h100-pcie-bf16-is-not-1513"),
    pytest.param("a100-sxm-80gb", "bf16", 312e12, id="LLM_Sizing_Guide#3-a100-bf16-is-not-156"),
    pytest.param("a100-sxm-40gb", "bf16", 312e12, id="LLM_Sizing_Guide#3-a100-40gb-bf16"),
]


@pytest.mark.parametrize(("name", "dtype", "peak"), DENSE)
def test_peaks_are_dense(name: str, dtype: str, peak: float) -> None:
    assert load_profile(name).peak_flops_per_s[dtype] == peak


@pytest.mark.parametrize("name", profile_names())
def test_fp8_is_at_most_twice_16_bit(name: str) -> None:
    """inference-sim#1738: a ratio of 4 betrays a sparse row; Gaudi 3 and TPU v6e run FP8 at the BF16 rate."""
    peaks = load_profile(name).peak_flops_per_s
    if "fp8" in peaks:
        assert 1.0 <= peaks["fp8"] / peaks["bf16"] <= 2.1


SIZES = [
    pytest.param("h100-sxm", 79.18, id="llm-d-benchmark#1791-h100-80GB"),
    pytest.param("rtx-3090", 23.58, id="vllm#10517-rtx-3090-24GB"),
]


@pytest.mark.parametrize(("name", "gib"), SIZES)
def test_memory_is_what_a_process_sees(name: str, gib: float) -> None:
    """In GiB the driver offers less than the printed GB; the figure moves by 0.5 % between drivers."""
    assert load_profile(name).memory_bytes / 2**30 == pytest.approx(gib, rel=0.005)


def test_h100_is_79_18_gib() -> None:
    assert load_profile("h100-sxm").memory_bytes / 2**30 == pytest.approx(79.19, abs=0.01)


def test_ridge_of_the_h100() -> None:
    assert load_profile("h100-sxm").ridge_flops_per_byte("bf16") == pytest.approx(295, abs=0.5)


@pytest.mark.parametrize("name", ["v100-sxm-32gb", "t4", "apple-m4-max"])
def test_no_bf16_where_the_device_has_none(name: str) -> None:
    peaks = load_profile(name).peak_flops_per_s
    assert "bf16" not in peaks
    assert peaks["fp16"] > 0


def test_geforce_peaks_accumulate_in_fp32() -> None:
    assert load_profile("rtx-4090").peak_flops_per_s["bf16"] == 165.2e12
    assert load_profile("rtx-5090").peak_flops_per_s["bf16"] == 209.5e12
