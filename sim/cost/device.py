"""A device as operators see it: peaks, bandwidth and the curve of each kind of kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sim.cost.curves import IDEAL_DECODE, IDEAL_GEMM, IDEAL_MOE, IDEAL_PREFILL
from sim.cost.dtypes import compute_dtype
from sim.errors import DoesNotFit
from sim.hardware import (
    CollectiveCurve,
    DecodeAttentionCurve,
    GemmCurve,
    HardwareProfile,
    MoeCurve,
    PrefillAttentionCurve,
)

Curve = TypeVar("Curve")
FALLBACK = "bf16"
"""Row of a weight dtype that has none of its own."""


class Device:
    """Looks up peaks and curves; ``ideal`` takes datasheet peaks and no overheads."""

    def __init__(self, profile: HardwareProfile, *, ideal: bool) -> None:
        self.profile = profile
        self.ideal = ideal
        self.bandwidth = profile.hbm_bytes_per_s
        self.elementwise_bandwidth = self.bandwidth * (1.0 if ideal else profile.efficiency.elementwise_memory)
        self.mixed_step_decode = 1.0 if ideal else profile.efficiency.mixed_step_decode

    def peak(self, weight_dtype: str) -> tuple[float, str]:
        """FLOP/s for weights of a dtype, and the dtype they are multiplied in."""
        dtype = compute_dtype(weight_dtype, self.profile.peak_flops_per_s)
        return self.profile.peak_flops_per_s[dtype], dtype

    def gemm(self, weight_dtype: str) -> GemmCurve:
        return IDEAL_GEMM if self.ideal else _row(self.profile.efficiency.gemm, weight_dtype)

    def moe(self, weight_dtype: str) -> MoeCurve:
        return IDEAL_MOE if self.ideal else _row(self.profile.efficiency.moe, weight_dtype)

    def decode_attention(self, head_dim: int) -> DecodeAttentionCurve:
        return IDEAL_DECODE if self.ideal else _nearest(self.profile.efficiency.decode_attention, head_dim)

    def prefill_attention(self, head_dim: int) -> PrefillAttentionCurve:
        return IDEAL_PREFILL if self.ideal else _nearest(self.profile.efficiency.prefill_attention, head_dim)

    def all_reduce(self, ranks: int) -> CollectiveCurve:
        """One all-reduce over ``ranks`` devices. Ideal: a ring over the scale-up link (PCIe without one), no latency.

        Raises DoesNotFit where the profile knows no way to join so many devices.
        """
        link = self.profile.scale_up
        if self.ideal:
            joined = link is not None and ranks <= link.devices
            bytes_per_s = link.bytes_per_s if joined and link is not None else self.profile.pcie_bytes_per_s
            if bytes_per_s is not None:
                return CollectiveCurve(latency_s=0.0, bytes_per_s=bytes_per_s * ranks / (2 * (ranks - 1)))
        else:
            curves = self.profile.efficiency.all_reduce
            known = [devices for devices in curves if devices >= ranks]
            if known:
                return curves[min(known)]
        most = max(self.profile.efficiency.all_reduce, default=1)
        raise DoesNotFit(
            f"{self.profile.name} has no measured link for tensor parallelism over {ranks} devices",
            f"use a tensor_parallel of at most {most}, or add all_reduce figures to the profile",
        )


def _row(curves: Mapping[str, Curve], weight_dtype: str) -> Curve:
    return curves.get(weight_dtype) or curves[FALLBACK]


def _nearest(curves: Mapping[int, Curve], head_dim: int) -> Curve:
    return curves[min(curves, key=lambda size: (abs(size - head_dim), size))]
