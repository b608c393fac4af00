"""Fits recover the predictions of known curves; what a device was never seen to do is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.ceiling import Ceiling, FitError, refuse_decode_above, refuse_gemm_above, refuse_prefill_above
from calibrate.fit import elementwise_share, fit_decode, fit_gemm, fit_prefill, moe_from_gemm, rounded
from calibrate.kernels import FULL, QUICK, DecodeAttention, Elementwise, Gemm, PrefillAttention, Sample, plan
from calibrate.predict import Rates, decode_seconds, gemm_seconds, prefill_seconds
from sim.hardware import DecodeAttentionCurve, GemmCurve, PrefillAttentionCurve

RATES = Rates(1e15, 3.35e12)
CEILING = Ceiling(1e15, 3.35e12)
GEMM = GemmCurve(launch_s=4e-6, memory=0.87, compute=0.82, pad_tokens=20.0, narrow_columns=17.0, softness=2.8)
DECODE = DecodeAttentionCurve(launch_s=11e-6, memory=0.92, per_sequence_s=34e-9, head_fill=0.65)
PREFILL = PrefillAttentionCurve(launch_s=13e-6, memory=0.41, compute=0.73, ramp_tokens=30.0, head_ramp=1.3)
FAMILIES = {
    "gemm": (Gemm, fit_gemm, gemm_seconds, GEMM),
    "decode": (DecodeAttention, fit_decode, decode_seconds, DECODE),
    "prefill": (PrefillAttention, fit_prefill, prefill_seconds, PREFILL),
}


def samples_of(family, grid, noise=0.0, curve=None):
    """What a device that follows the curve exactly, but for noise, would measure."""
    kind, _, predict, known = FAMILIES[family]
    kernels = [k for k in plan(grid, ["bf16"], 2**28) if isinstance(k, kind) and getattr(k, "head_dim", 128) == 128]
    seconds = predict(curve or known, kernels, RATES)
    jitter = np.exp(np.random.default_rng(7).normal(0.0, noise, len(kernels)))
    return [Sample(kernel, float(s)) for kernel, s in zip(kernels, seconds * jitter, strict=True)]


@pytest.mark.parametrize("grid", [QUICK, FULL], ids=["quick", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fit_predicts_what_the_known_curve_predicts(family, grid):
    """Within 3 % on every shape of the full grid, measured or not."""
    _, fit, predict, known = FAMILIES[family]
    found = fit(samples_of(family, grid), RATES, CEILING)
    kernels = [sample.kernel for sample in samples_of(family, FULL)]
    assert predict(found.curve, kernels, RATES) == pytest.approx(predict(known, kernels, RATES), rel=0.03)
    assert found.fitted_error < 0.01
    assert found.held_out_error is not None
    assert found.held_out_error < 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_of_the_samples_does_not_reach_the_curve(family):
    """5 % on each sample leaves the median prediction within 3 %."""
    _, fit, predict, known = FAMILIES[family]
    found = fit(samples_of(family, FULL, noise=0.05), RATES, CEILING)
    kernels = [sample.kernel for sample in samples_of(family, FULL)]
    off = np.abs(predict(found.curve, kernels, RATES) / predict(known, kernels, RATES) - 1)
    assert np.median(off) < 0.03
    assert 0.01 < found.error < 0.08


def test_a_few_wild_samples_do_not_bend_the_curve():
    samples = samples_of("gemm", FULL)
    wild = [replace(sample, seconds=sample.seconds * 5) if i % 20 == 0 else sample for i, sample in enumerate(samples)]
    found = fit_gemm(wild, RATES, CEILING)
    kernels = [sample.kernel for sample in samples]
    off = np.abs(gemm_seconds(found.curve, kernels, RATES) / gemm_seconds(GEMM, kernels, RATES) - 1)
    assert np.median(off) < 0.03


def test_the_error_is_that_of_shapes_the_fit_never_saw():
    """Held-out samples a fifth slower than the curve show as such, and do not move it."""
    samples = [
        replace(sample, seconds=sample.seconds * (1.25 if sample.kernel.held_out else 1.0))
        for sample in samples_of("gemm", FULL)
    ]
    found = fit_gemm(samples, RATES, CEILING)
    assert found.fitted_error < 0.01
    assert found.error == pytest.approx(0.2, abs=0.01)


def test_decode_attention_gets_a_compute_term_only_where_it_shows():
    assert fit_decode(samples_of("decode", QUICK), RATES, CEILING).curve.compute is None
    bound = replace(DECODE, compute=0.004)
    curve = fit_decode(samples_of("decode", QUICK, curve=bound), RATES, CEILING).curve
    assert curve.compute == pytest.approx(0.004, rel=0.1)


def test_shares_stay_below_what_was_measured():
    """A datasheet peak that no product reached bounds nothing; the measured ceiling does."""
    slow = Ceiling(0.6e15, 2.0e12)
    found = fit_gemm(samples_of("gemm", FULL, curve=replace(GEMM, memory=0.55, compute=0.58)), RATES, slow)
    assert found.curve.compute <= 0.6
    assert found.curve.memory <= 2.0 / 3.35


def test_samples_from_cache_are_left_out():
    """Faster than memory can be read: those operands were in cache."""
    samples = samples_of("gemm", FULL)
    cached = [
        replace(sample, seconds=sample.kernel.cold_bytes / 10e12)
        for sample in samples
        if isinstance(sample.kernel, Gemm) and sample.kernel.tokens == 1
    ]
    found = fit_gemm(samples + cached, RATES, CEILING)
    assert found.cached == len(cached)
    assert found.fitted_error < 0.01


@pytest.mark.parametrize(
    ("refuse", "curve"),
    [
        (refuse_gemm_above, replace(GEMM, compute=1.1)),
        (refuse_gemm_above, replace(GEMM, memory=1.2)),
        (refuse_decode_above, replace(DECODE, memory=1.2, per_sequence_s=0.0)),
        (refuse_prefill_above, replace(PREFILL, compute=1.1)),
    ],
)
def test_a_curve_above_the_measured_ceiling_is_refused(refuse, curve):
    with pytest.raises(FitError, match=r"promises .* the highest measured is"):
        refuse(curve, RATES, CEILING)


def test_too_few_samples_are_refused():
    with pytest.raises(FitError, match="3 usable samples"):
        fit_gemm(samples_of("gemm", FULL)[:3], RATES, CEILING)


def test_experts_follow_the_products():
    moe = moe_from_gemm(GEMM)
    assert (moe.launch_s, moe.memory, moe.compute, moe.pad_tokens) == (8e-6, 0.87, 0.82, 20.0)


def test_elementwise_share_is_the_median_and_at_most_one():
    kernel = Elementwise(kind="norm", dtype="bf16", tokens=1000)
    samples = [Sample(kernel, kernel.traffic_bytes / rate) for rate in (1e12, 2e12, 3e12)]
    assert elementwise_share(samples, 4e12) == pytest.approx(0.5)
    assert elementwise_share(samples, 1e12) == 1.0


def test_figures_are_written_with_four_digits():
    assert rounded(replace(GEMM, memory=0.123456789)).memory == 0.1235
    assert rounded(replace(GEMM, pad_tokens=3.4e-10)).pad_tokens == 0.0
