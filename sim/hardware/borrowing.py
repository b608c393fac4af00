"""Curves of a device nobody has measured: a sibling's, as shares of this device's own peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sim.hardware.collectives import scaled_all_reduce
from sim.hardware.profile import (
    CollectiveCurve,
    Count,
    DecodeAttentionCurve,
    Efficiency,
    GemmCurve,
    HardwareProfile,
    Link,
    MemoryShare,
    MoeCurve,
    Positive,
    PrefillAttentionCurve,
)


class Borrowed(BaseModel):
    """``efficiency: {from: h100-sxm, ...}`` in a profile: own rows replace the sibling's row by row."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sibling: str = Field(alias="from")
    why: str
    """Why that sibling."""
    gemm: Mapping[str, GemmCurve] = {}
    decode_attention: Mapping[Count, DecodeAttentionCurve] = {}
    prefill_attention: Mapping[Count, PrefillAttentionCurve] = {}
    moe: Mapping[str, MoeCurve] = {}
    all_reduce: Mapping[Count, CollectiveCurve] = {}
    elementwise_memory: MemoryShare | None = None
    mixed_step_decode: Positive | None = None


Row = TypeVar("Row", GemmCurve, MoeCurve)


def ridge_16bit(peak_flops_per_s: Mapping[str, float], hbm_bytes_per_s: float) -> float:
    """FLOP/byte at which 16-bit products turn from memory to compute."""
    peak = peak_flops_per_s.get("bf16") or peak_flops_per_s.get("fp16") or peak_flops_per_s["fp32"]
    return peak / hbm_bytes_per_s


def with_padding(rows: Mapping[str, Row], share: float) -> dict[str, Row]:
    """Rows with less tile padding.

    Padding was fitted as FLOPs beside the bytes of one device; on one with a lower ridge the same FLOPs would make a
    single token bound by compute. Kernels for such a device use smaller tiles.
    """
    return {dtype: replace(row, pad_tokens=row.pad_tokens * min(1.0, share)) for dtype, row in rows.items()}


def borrow(
    own: Borrowed,
    sibling: HardwareProfile,
    scale_up: Link | None,
    pcie_bytes_per_s: float | None,
    ridge_flops_per_byte: float,
) -> Efficiency:
    """The sibling's efficiency for a device with these links and this 16-bit ridge, marked as not calibrated; errors
    stay behind.
    """
    curves = sibling.efficiency
    padding = ridge_flops_per_byte / ridge_16bit(sibling.peak_flops_per_s, sibling.hbm_bytes_per_s)
    all_reduce = scaled_all_reduce(curves.all_reduce, sibling.scale_up, scale_up, pcie_bytes_per_s)
    return replace(
        curves,
        source=f"borrowed from {sibling.name} ({own.why}), whose own are {curves.source}",
        calibrated=False,
        gemm={**with_padding(curves.gemm, padding), **own.gemm},
        decode_attention={**curves.decode_attention, **own.decode_attention},
        prefill_attention={**curves.prefill_attention, **own.prefill_attention},
        moe={**with_padding(curves.moe, padding), **own.moe},
        all_reduce={**all_reduce, **own.all_reduce},
        elementwise_memory=own.elementwise_memory or curves.elementwise_memory,
        mixed_step_decode=own.mixed_step_decode or curves.mixed_step_decode,
        error={},
    )
