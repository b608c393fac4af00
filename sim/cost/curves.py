"""Seconds of one operator: work over a peak, bent by how near kernels come to it.

Each function returns ``Parts``: the operator's time split by what it is spent on. ``ideal`` curves (shares of 1, no
launch) give the plain roofline max(FLOPs / peak, bytes / bandwidth).
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

from sim.hardware import (
    CollectiveCurve,
    DecodeAttentionCurve,
    GemmCurve,
    MoeCurve,
    PrefillAttentionCurve,
)

_new = tuple.__new__
"""Makes a NamedTuple without its Python-level constructor, which would be half of the time these functions take."""
INFINITY = float("inf")
IDEAL_GEMM = GemmCurve(launch_s=0.0, memory=1.0, compute=1.0)
IDEAL_DECODE = DecodeAttentionCurve(launch_s=0.0, memory=1.0, compute=1.0)
IDEAL_PREFILL = PrefillAttentionCurve(launch_s=0.0, memory=1.0, compute=1.0)
IDEAL_MOE = MoeCurve(launch_s=0.0, memory=1.0, compute=1.0)
MOE_SOFTNESS = 3.0


class Parts(NamedTuple):
    """Seconds by what bounds them."""

    compute_s: float
    memory_s: float
    communication_s: float
    launch_s: float

    def plus(self, other: Parts) -> Parts:
        return Parts(
            self.compute_s + other.compute_s,
            self.memory_s + other.memory_s,
            self.communication_s + other.communication_s,
            self.launch_s + other.launch_s,
        )

    def times(self, count: int) -> Parts:
        return Parts(self.compute_s * count, self.memory_s * count, self.communication_s * count, self.launch_s * count)

    @property
    def total_s(self) -> float:
        return self.compute_s + self.memory_s + self.communication_s + self.launch_s


def ridge(compute_s: float, memory_s: float, softness: float, launch_s: float) -> Parts:
    """max(compute, memory), rounded at the ridge by a p-norm; the whole is charged to the larger."""
    larger, smaller = max(compute_s, memory_s), min(compute_s, memory_s)
    total_s = larger
    if softness != INFINITY and larger > 0:
        total_s = larger * (1 + (smaller / larger) ** softness) ** (1 / softness)
    if compute_s >= memory_s:
        return _new(Parts, (total_s, 0.0, 0.0, launch_s))
    return _new(Parts, (0.0, total_s, 0.0, launch_s))


def gemm(
    curve: GemmCurve, tokens: int, columns: float, inner: float, hbm_bytes: float, peak: float, bandwidth: float
) -> Parts:
    """(tokens x inner) by (inner x columns)."""
    flops = 2 * columns * inner * (tokens + curve.pad_tokens) * (1 + curve.narrow_columns / columns)
    return ridge(flops / (peak * curve.compute), hbm_bytes / (bandwidth * curve.memory), curve.softness, curve.launch_s)


def experts(
    curve: MoeCurve,
    routed_tokens: float,
    distinct: float,
    expert_flops_per_token: float,
    hbm_bytes: float,
    peak: float,
    bandwidth: float,
) -> Parts:
    """Grouped product over the distinct experts hit; each pads its tokens to a tile."""
    flops = expert_flops_per_token * (routed_tokens + curve.pad_tokens * distinct)
    softness = INFINITY if curve is IDEAL_MOE else MOE_SOFTNESS
    return ridge(flops / (peak * curve.compute), hbm_bytes / (bandwidth * curve.memory), softness, curve.launch_s)


def distinct_experts(experts_: int, per_token: int, tokens: float) -> float:
    """Expected experts hit by ``tokens`` under uniform routing: N (1 - (1 - k/N)^tokens)."""
    missed: float = (1.0 - per_token / experts_) ** tokens
    return experts_ * (1.0 - missed)


def busiest_share(curve: MoeCurve, shares: int) -> float:
    """Tokens of the busiest of so many expert shares, over the mean.

    ``expert_parallel_imbalance`` is its excess at 8 shares; it grows with the other shares up to there, and per
    doubling beyond. No share gets more than all. This form reproduces the experts' tables of aiconfigurator-core 0.12
    (vLLM kernels, power-law routing, 2 to 8 shares) to 13 % in the median, 5 % too fast: 23 % at up to 4 tokens.
    """
    excess = (shares - 1) / 7 if shares <= 8 else log2(shares) - 2
    return min(float(shares), 1.0 + curve.expert_parallel_imbalance * excess)


def decode_attention(
    curve: DecodeAttentionCurve,
    sequences: int,
    kv_heads: int,
    kv_bytes: float,
    flops: float,
    peak: float,
    bandwidth: float,
) -> Parts:
    """One query per sequence over its cached keys and values; linear in the sum of contexts."""
    memory_s = kv_bytes / (bandwidth * curve.memory)
    if curve is IDEAL_DECODE:
        return ridge(flops / peak, memory_s, INFINITY, 0.0)
    memory_s *= 1 + curve.head_fill / (sequences * kv_heads)
    compute_s = 0.0 if curve.compute is None else flops / (peak * curve.compute)
    return _new(Parts, (compute_s, memory_s, 0.0, curve.launch_s + curve.per_sequence_s * sequences))


def prefill_attention(
    curve: PrefillAttentionCurve,
    sequences: int,
    heads: int,
    length_tokens: int,
    flops: float,
    hbm_bytes: float,
    peak: float,
    bandwidth: float,
) -> Parts:
    """Causal attention of one chunk; linear in its area. The launch is the step's, not the chunk's: not included."""
    compute_s = flops / (peak * curve.compute)
    memory_s = hbm_bytes / (bandwidth * curve.memory)
    if curve is IDEAL_PREFILL:
        return ridge(compute_s, memory_s, INFINITY, 0.0)
    compute_s *= (1 + curve.ramp_tokens / length_tokens) * (1 + curve.head_ramp / (sequences * heads))
    return _new(Parts, (compute_s, memory_s, 0.0, 0.0))


def collective(curve: CollectiveCurve, message_bytes: float) -> Parts:
    """One all-reduce."""
    return Parts(0.0, 0.0, curve.latency_s + message_bytes / curve.bytes_per_s, 0.0)


def causal_area(tokens: int, context_tokens: int, window_tokens: int | None) -> int:
    """Key positions that a chunk's queries attend to: the sum of min(context + i, window) for i = 1 .. tokens."""
    if window_tokens is None:
        return tokens * context_tokens + tokens * (tokens + 1) // 2
    growing = min(tokens, max(0, window_tokens - context_tokens))
    return growing * context_tokens + growing * (growing + 1) // 2 + (tokens - growing) * window_tokens
