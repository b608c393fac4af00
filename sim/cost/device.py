"""A device as operators see it: peaks, bandwidth and the curve of each kind of kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
    collectives,
)
from sim.work import BandwidthShare, KernelFactor

Curve = TypeVar("Curve")
Bandwidth = TypeVar("Bandwidth", GemmCurve, DecodeAttentionCurve)
FALLBACK = "bf16"
"""Row of a weight dtype that has none of its own."""


class Device:
    """Looks up peaks and curves; ``ideal`` takes datasheet peaks and no overheads."""

    def __init__(
        self,
        profile: HardwareProfile,
        *,
        ideal: bool,
        factors: tuple[KernelFactor, ...] = (),
        shares: tuple[BandwidthShare, ...] = (),
    ) -> None:
        self.profile = profile
        self._share = None if ideal else _share(profile, shares)
        self._factors = () if ideal else factors
        self.ideal = ideal
        self.bandwidth = profile.hbm_bytes_per_s
        self.elementwise_bandwidth = self.bandwidth * (1.0 if ideal else profile.efficiency.elementwise_memory)
        self.mixed_step_decode = 1.0 if ideal else profile.efficiency.mixed_step_decode

    def peak(self, weight_dtype: str) -> tuple[float, str]:
        """FLOP/s for weights of a dtype, and the dtype they are multiplied in."""
        dtype = compute_dtype(weight_dtype, self.profile.peak_flops_per_s)
        return self.profile.peak_flops_per_s[dtype], dtype

    def gemm(self, weight_dtype: str) -> GemmCurve:
        return IDEAL_GEMM if self.ideal else self._reaching(_row(self.profile.efficiency.gemm, weight_dtype))

    def moe(self, weight_dtype: str) -> MoeCurve:
        return IDEAL_MOE if self.ideal else _row(self.profile.efficiency.moe, weight_dtype)

    def expert_factor(self, weight_dtype: str, tokens: int) -> float:
        """How much longer the engine's expert kernel takes than the measured one, in a step of so many tokens."""
        for known in self._factors:
            if (known.weight_dtype, known.architecture) == (weight_dtype, self.profile.architecture):
                return known.factor if tokens > known.above_tokens else 1.0
        return 1.0

    def decode_attention(self, head_dim: int) -> DecodeAttentionCurve:
        if self.ideal:
            return IDEAL_DECODE
        return self._reaching(_nearest(self.profile.efficiency.decode_attention, head_dim))

    def _reaching(self, curve: Bandwidth) -> Bandwidth:
        """The curve with the engine's own share of the bandwidth, where that is known."""
        return curve if self._share is None else replace(curve, memory=self._share)

    def prefill_attention(self, head_dim: int) -> PrefillAttentionCurve:
        return IDEAL_PREFILL if self.ideal else _nearest(self.profile.efficiency.prefill_attention, head_dim)

    def all_reduce(self, ranks: int) -> CollectiveCurve:
        """One all-reduce over ``ranks`` devices. Raises DoesNotFit where no link of the profile joins so many."""
        curve = collectives.all_reduce(self.profile, ranks, ideal=self.ideal)
        if curve is None:
            raise DoesNotFit(*no_link(self.profile, f"a group of {ranks} devices"))
        return curve

    def all_gather(self, ranks: int) -> CollectiveCurve:
        """All-gather or reduce-scatter of the whole's bytes."""
        return collectives.all_gather(self.all_reduce(ranks), ranks, ideal=self.ideal)

    def all_to_all(self, ranks: int) -> CollectiveCurve:
        """Of the bytes that a device sends to others."""
        return collectives.all_to_all(self.profile, self.all_reduce(ranks), ranks, ideal=self.ideal)

    def send(self, stage: int, group: int) -> CollectiveCurve:
        """From a pipeline stage of ``group`` devices to the next; from the device that is worst off."""
        curves = [
            collectives.send(self.profile, stage * group + rank, group=group, ideal=self.ideal) for rank in range(group)
        ]
        known = [curve for curve in curves if curve is not None]
        if len(known) < len(curves):
            raise DoesNotFit(*no_link(self.profile, f"pipeline stage {stage + 2}"))
        return min(known, key=lambda curve: (curve.bytes_per_s, -curve.latency_s))


def no_link(profile: HardwareProfile, what: str) -> tuple[str, str]:
    """Problem and cure of a group that is too large for the profile's links."""
    most = collectives.node_devices(profile)
    return (
        f"no link of {profile.name} is known that joins {what}",
        f"use groups of at most {most} devices, or give the profile a network_bytes_per_s or all_reduce figures",
    )


def _share(profile: HardwareProfile, shares: tuple[BandwidthShare, ...]) -> float | None:
    fitting = (
        known.share
        for known in shares
        if known.architecture in {None, profile.architecture} and profile.hbm_bytes_per_s > known.above_bytes_per_s
    )
    return next(fitting, None)


def _row(curves: Mapping[str, Curve], weight_dtype: str) -> Curve:
    return curves.get(weight_dtype) or curves[FALLBACK]


def _nearest(curves: Mapping[int, Curve], head_dim: int) -> Curve:
    return curves[min(curves, key=lambda size: (abs(size - head_dim), size))]
