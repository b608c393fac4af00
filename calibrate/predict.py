"""Seconds that a curve gives a kernel, on a device with these rates. The forms are those of the profile's curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.kernels import DecodeAttention, Gemm, PrefillAttention
from sim.hardware.profile import DecodeAttentionCurve, GemmCurve, PrefillAttentionCurve

Floats = NDArray[np.float64]


class Rates(NamedTuple):
    """The figures efficiencies are shares of: the device's peak for a dtype, and its bandwidth."""

    flops_per_s: float
    bytes_per_s: float


def gemm_seconds(curve: GemmCurve, kernels: Sequence[Gemm], rates: Rates) -> Floats:
    """Seconds of products whose weights come from memory."""
    m, n, k = _columns([(g.tokens, g.columns, g.depth) for g in kernels])
    traffic = _column([g.traffic_bytes for g in kernels])
    memory_s = traffic / (rates.bytes_per_s * curve.memory)
    flops = 2 * n * k * (m + curve.pad_tokens) * (1 + curve.narrow_columns / n)
    compute_s = flops / (rates.flops_per_s * curve.compute)
    return curve.launch_s + _soft_maximum(memory_s, compute_s, curve.softness)


def decode_seconds(curve: DecodeAttentionCurve, kernels: Sequence[DecodeAttention], rates: Rates) -> Floats:
    """Seconds of decode attention."""
    sequences, heads = _columns([(d.sequences, d.kv_heads) for d in kernels])
    kv_bytes, flops = _columns([(d.cold_bytes, d.flops) for d in kernels])
    fill = 1 + curve.head_fill / (sequences * heads)
    seconds: Floats = (
        curve.launch_s + kv_bytes / (rates.bytes_per_s * curve.memory) * fill + curve.per_sequence_s * sequences
    )
    return seconds if curve.compute is None else seconds + flops / (rates.flops_per_s * curve.compute)


def prefill_seconds(curve: PrefillAttentionCurve, kernels: Sequence[PrefillAttention], rates: Rates) -> Floats:
    """Seconds of causal attention over whole prompts."""
    tokens, heads = _columns([(p.tokens, p.sequences * p.heads) for p in kernels])
    traffic, flops = _columns([(p.traffic_bytes, p.flops) for p in kernels])
    ramps = (1 + curve.ramp_tokens / tokens) * (1 + curve.head_ramp / heads)
    compute_s = flops / (rates.flops_per_s * curve.compute) * ramps
    seconds: Floats = curve.launch_s + compute_s + traffic / (rates.bytes_per_s * curve.memory)
    return seconds


def _soft_maximum(a: Floats, b: Floats, softness: float) -> Floats:
    """(a^p + b^p)^(1/p), scaled by the larger so that high powers do not underflow."""
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    if np.isinf(softness):
        return larger
    soft: Floats = larger * np.power(1 + np.power(smaller / larger, softness), 1 / softness)
    return soft


def _columns(rows: Sequence[tuple[int, ...]]) -> Floats:
    return np.array(rows, dtype=float).T


def _column(values: Sequence[int]) -> Floats:
    return np.array(values, dtype=float)
