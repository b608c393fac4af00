"""The forms that are fitted are those the simulator computes with."""

from __future__ import annotations

import pytest

from calibrate.kernels import DecodeAttention, Gemm, PrefillAttention
from calibrate.predict import Rates, decode_seconds, gemm_seconds, prefill_seconds
from sim.cost import curves
from sim.hardware import DecodeAttentionCurve, GemmCurve, PrefillAttentionCurve

RATES = Rates(1e14, 1e12)


@pytest.mark.parametrize("softness", [1.5, 3.0, float("inf")])
@pytest.mark.parametrize("tokens", [1, 100, 4096])
def test_products_take_what_the_simulator_says(tokens, softness):
    curve = GemmCurve(launch_s=4e-6, memory=0.9, compute=0.8, pad_tokens=20.0, narrow_columns=100.0, softness=softness)
    g = Gemm(dtype="bf16", tokens=tokens, depth=4096, columns=1024)
    parts = curves.gemm(curve, g.tokens, g.columns, g.depth, g.traffic_bytes, *RATES)
    assert gemm_seconds(curve, [g], RATES)[0] == pytest.approx(parts.total_s, rel=1e-12)


@pytest.mark.parametrize("compute", [None, 0.1])
def test_decode_attention_takes_what_the_simulator_says(compute):
    curve = DecodeAttentionCurve(launch_s=1e-5, memory=0.9, compute=compute, per_sequence_s=3e-8, head_fill=0.7)
    d = DecodeAttention(dtype="bf16", sequences=3, heads=32, kv_heads=8, head_dim=128, context_tokens=1000)
    parts = curves.decode_attention(curve, d.sequences, d.kv_heads, d.cold_bytes, d.flops, *RATES)
    assert decode_seconds(curve, [d], RATES)[0] == pytest.approx(parts.total_s, rel=1e-12)


def test_prefill_attention_takes_what_the_simulator_says():
    """But for the launch, which the simulator charges once a step."""
    curve = PrefillAttentionCurve(launch_s=1e-5, memory=0.4, compute=0.7, ramp_tokens=30.0, head_ramp=1.3)
    p = PrefillAttention(dtype="bf16", sequences=1, heads=32, head_dim=128, tokens=1000)
    parts = curves.prefill_attention(curve, p.sequences, p.heads, p.tokens, p.flops, p.traffic_bytes, *RATES)
    assert prefill_seconds(curve, [p], RATES)[0] == pytest.approx(parts.total_s + curve.launch_s, rel=1e-12)
