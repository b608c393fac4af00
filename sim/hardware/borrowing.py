"""Curves of a device nobody has measured: a sibling's, as shares of this device's own peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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


def borrow(
    own: Borrowed, sibling: HardwareProfile, scale_up: Link | None, pcie_bytes_per_s: float | None
) -> Efficiency:
    """The sibling's efficiency for a device with these links, marked as not calibrated; errors stay behind."""
    curves = sibling.efficiency
    all_reduce = scaled_all_reduce(curves.all_reduce, sibling.scale_up, scale_up, pcie_bytes_per_s)
    return replace(
        curves,
        source=f"borrowed from {sibling.name} ({own.why}), whose own are {curves.source}",
        calibrated=False,
        gemm={**curves.gemm, **own.gemm},
        decode_attention={**curves.decode_attention, **own.decode_attention},
        prefill_attention={**curves.prefill_attention, **own.prefill_attention},
        moe={**curves.moe, **own.moe},
        all_reduce={**all_reduce, **own.all_reduce},
        elementwise_memory=own.elementwise_memory or curves.elementwise_memory,
        mixed_step_decode=own.mixed_step_decode or curves.mixed_step_decode,
        error={},
    )
