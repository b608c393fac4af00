"""Profiles from samples whose curves are known: without a datasheet, and over one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.device import DeviceFacts
from calibrate.fitting import fit_all, round_up
from calibrate.kernels import QUICK, DecodeAttention, Elementwise, Gemm, PrefillAttention, Sample, Stream, plan
from calibrate.known import PROFILES, matching_profile
from calibrate.predict import Rates, decode_seconds, gemm_seconds, prefill_seconds
from calibrate.profile import Provenance, build_profile, slug
from sim.errors import RidgelineError
from sim.hardware import load_profile, profile_names, save_profile

H100 = load_profile("h100-sxm")
CURVES = H100.efficiency
FACTS = DeviceFacts(
    kind="cpu",
    name="Test Device, 2 threads",
    vendor="AMD",
    architecture="x86_64",
    memory_bytes=2**34,
    free_bytes=2**33,
    cache_bytes=2**25,
    torch_version="2.9",
)
PROVENANCE = Provenance(facts=FACTS, date="2026-12-01", command="calibrate run --device cpu", decode_kernel="a kernel")


def seconds(kernel, dtype_scale):
    rates = Rates(H100.peak_flops_per_s["bf16"] * dtype_scale, H100.hbm_bytes_per_s)
    if isinstance(kernel, Gemm):
        return float(gemm_seconds(CURVES.gemm["bf16"], [kernel], rates)[0])
    if isinstance(kernel, DecodeAttention):
        return float(decode_seconds(CURVES.decode_attention[128], [kernel], rates)[0])
    if isinstance(kernel, PrefillAttention):
        return float(prefill_seconds(CURVES.prefill_attention[128], [kernel], rates)[0])
    share = {Stream: 0.94, Elementwise: 0.8}.get(type(kernel), 0.01)
    return kernel.traffic_bytes / (H100.hbm_bytes_per_s * share)


def measured(dtypes=("fp32", "bf16"), scale=None):
    """What an H100 that follows its shipped curves would measure."""
    scale = {"fp32": 0.05, "bf16": 1.0, "fp16": 1.0, "fp8": 2.0, **(scale or {})}
    return [Sample(k, seconds(k, scale[k.dtype]), 0.01, 5) for k in plan(QUICK, dtypes, 2**28)]


def test_without_a_datasheet_the_ceilings_seen_are_the_peaks(tmp_path):
    samples = measured()
    profile = build_profile(samples, fit_all(samples, None), PROVENANCE, base=None, name=None)
    best = max(s.kernel.flops / s.seconds for s in samples if isinstance(s.kernel, Gemm) and s.kernel.dtype == "bf16")
    assert best <= profile.peak_flops_per_s["bf16"] <= 1.01 * best
    assert profile.hbm_bytes_per_s == pytest.approx(0.94 * H100.hbm_bytes_per_s, rel=0.01)
    assert profile.name == "test-device-2-threads"
    assert profile.efficiency.all_reduce == {}
    assert "derived from the gemm curves, not measured" in profile.efficiency.source
    assert set(profile.efficiency.error) == {
        "gemm.fp32",
        "gemm.bf16",
        "decode_attention.128",
        "prefill_attention.128",
    }
    save_profile(profile, tmp_path / "p.yaml")
    assert load_profile(str(tmp_path / "p.yaml")) == profile


def test_over_a_base_only_efficiencies_change():
    samples = measured(["bf16"])
    profile = build_profile(samples, fit_all(samples, H100), PROVENANCE, base=H100, name="mine")
    kept = replace(profile, name=H100.name, efficiency=H100.efficiency, notes=H100.notes)
    assert kept == H100
    own = profile.efficiency
    assert own.gemm["bf16"].compute == pytest.approx(CURVES.gemm["bf16"].compute, rel=0.1)
    assert own.gemm["bf16"] != CURVES.gemm["bf16"]
    assert own.gemm["fp8"] == CURVES.gemm["fp8"]
    assert (own.moe, own.all_reduce) == (CURVES.moe, CURVES.all_reduce)
    assert own.error["moe.bf16"] == CURVES.error["moe.bf16"]
    assert own.date == "2026-12-01"


def test_a_base_slower_than_what_was_measured_is_another_device():
    with pytest.raises(RidgelineError, match=r"--base l4: the measured bandwidth is .* its datasheet says"):
        fit_all(measured(["bf16"]), load_profile("l4"))


def test_an_fp8_rate_no_dense_product_has_is_left_out_and_noted():
    """Beside a disturbed 16-bit measurement fp8 would look sparse, and no profile may hold that."""
    fits = fit_all(measured(["bf16", "fp8"], scale={"bf16": 0.3}), None)
    assert "fp8" not in fits.rates
    assert any("fp8 left out" in note for note in fits.notes)


def test_a_dtype_with_too_few_kernels_is_left_out_and_noted():
    samples = [s for s in measured(["fp32", "bf16"]) if s.kernel.dtype != "fp32" or s.kernel.family != "gemm"]
    few = [s for s in measured(["fp32"]) if s.kernel.family == "gemm" and not s.kernel.held_out][:5]
    fits = fit_all(samples + few, None)
    assert set(fits.gemm) == {"bf16"}
    assert any(note.startswith("gemm.fp32 left out: ") for note in fits.notes)


def test_a_device_without_bf16_lends_its_fp16_row():
    """Dtypes without a row take bf16's, so one must be there."""
    samples = measured(["fp16"])
    profile = build_profile(samples, fit_all(samples, None), PROVENANCE, base=None, name=None)
    assert profile.efficiency.gemm["bf16"] == profile.efficiency.gemm["fp16"]
    assert set(profile.peak_flops_per_s) == {"fp16"}


def test_a_family_that_could_not_run_is_an_error():
    with pytest.raises(RidgelineError, match="no decode_attention kernel could be measured"):
        fit_all([s for s in measured() if s.kernel.family != "decode_attention"], None)


@pytest.mark.parametrize(("value", "rounded"), [(968.2e9, 969e9), (735e12, 735e12), (1.0001e9, 1.01e9)])
def test_ceilings_are_rounded_up(value, rounded):
    assert round_up(value) == rounded


def test_known_devices_ship_and_memory_tells_namesakes_apart():
    assert set(PROFILES.values()) <= set(profile_names())
    assert matching_profile("NVIDIA GeForce RTX 3080", 10 * 2**30) == load_profile("rtx-3080")
    assert matching_profile("NVIDIA GeForce RTX 3080", 12 * 2**30) is None
    assert matching_profile("AMD EPYC, 2 threads", 2**34) is None


def test_names_are_lower_case_with_dashes():
    assert slug("AMD EPYC 9B14 (96-Core), 2 threads") == "amd-epyc-9b14-96-core-2-threads"


def test_a_rough_fit_is_noted():
    """Times that other work stretched at random are not passed off as a calibration."""
    rng = np.random.default_rng(3)
    samples = [replace(s, seconds=s.seconds * float(rng.uniform(1.0, 4.0))) for s in measured(["bf16"])]
    notes = fit_all(samples, None).notes
    assert any(note.startswith("gemm.bf16 is a rough fit") for note in notes)
    assert fit_all(measured(["bf16"]), None).notes == ()


def test_a_dtype_that_ran_from_cache_is_left_out_not_fatal():
    """Eight-bit weights small enough for the cache would otherwise end the whole calibration."""
    cached = [
        replace(s, seconds=s.kernel.cold_bytes / 20e12) if s.kernel.curve == "gemm.int8" else s
        for s in measured(["bf16", "int8"], scale={"int8": 2.0})
    ]
    fits = fit_all(cached, None)
    assert set(fits.gemm) == {"bf16"}
    assert any(note.startswith("gemm.int8 left out: 0 usable kernels") for note in fits.notes)


def test_attention_needs_the_peak_of_its_dtype():
    samples = [s for s in measured(["bf16"]) if s.kernel.family != "gemm"]
    others = [s for s in measured(["fp16"]) if s.kernel.family == "gemm"]
    with pytest.raises(RidgelineError, match="too few bf16 products"):
        fit_all(samples + others, None)
