"""All curves of a device: rates first (the base's datasheet, or the measured ceilings), then one fit per group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibrate.ceiling import Ceiling
from calibrate.fit import LEAST_SAMPLES, Fit, elementwise_share, fit_decode, fit_gemm, fit_prefill, from_memory
from calibrate.kernels import DecodeAttention, Kernel, PrefillAttention, Sample
from calibrate.predict import Rates
from sim.errors import RidgelineError
from sim.hardware import HardwareProfile
from sim.hardware.guards import SPARSE_RATIO
from sim.hardware.profile import CLOCK_MARGIN

ENOUGH_OF_ALL = "free memory, measure without --quick, or on an idle device"
ROUGH = 0.15
"""Median error above which a fit is called rough."""
BANDWIDTH_MARGIN = 1.05
"""Measured bandwidth may exceed a datasheet's by this before the datasheet is taken for another device's."""


@dataclass(frozen=True, slots=True)
class Fits:
    """All curves, by dtype and head size."""

    rates: Mapping[str, Rates]
    gemm: Mapping[str, Fit[Any]]
    decode_attention: Mapping[int, Fit[Any]]
    prefill_attention: Mapping[int, Fit[Any]]
    elementwise_memory: float
    notes: tuple[str, ...] = ()
    """What was left out, and why."""

    def rows(self) -> dict[str, Fit[Any]]:
        """Fits by their key in ``efficiency.error``."""
        families: dict[str, Mapping[Any, Fit[Any]]] = {
            "gemm": self.gemm,
            "decode_attention": self.decode_attention,
            "prefill_attention": self.prefill_attention,
        }
        return {f"{family}.{key}": fit for family, fits in families.items() for key, fit in fits.items()}


def round_up(value: float, digits: int = 3) -> float:
    """Up to ``digits`` digits: a ceiling must not lie below what was measured."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / step * (1 - 1e-12)) * step:.{digits}g}")


def best_bandwidth(samples: Sequence[Sample]) -> float:
    """The better of copying and reading, bytes/s."""
    return max(s.kernel.traffic_bytes / s.seconds for s in samples if s.kernel.family == "bandwidth")


def best_products(samples: Sequence[Sample]) -> dict[str, float]:
    """The highest rate of any product, FLOP/s by dtype."""
    best: dict[str, float] = {}
    for sample in samples:
        if sample.kernel.family == "gemm":
            rate = sample.kernel.flops / sample.seconds
            best[sample.kernel.dtype] = max(rate, best.get(sample.kernel.dtype, 0.0))
    return best


def fit_all(samples: Sequence[Sample], base: HardwareProfile | None) -> Fits:
    """Every curve, as shares of the base's datasheet figures, or of the measured ceilings where there is no base."""
    _require(samples, ("bandwidth", "elementwise"))
    bandwidth = best_bandwidth(samples)
    samples, few = _with_enough(samples, bandwidth)
    _require(samples, ("gemm", "decode_attention", "prefill_attention"))
    products = best_products(samples)
    rates, sparse = _rates(bandwidth, products, base)
    gemm = {
        dtype: fit_gemm(
            _of(samples, "gemm", dtype=dtype), rate, Ceiling(round_up(products[dtype]), round_up(bandwidth))
        )
        for dtype, rate in rates.items()
    }

    def attention(family: str, fit: Callable[..., Fit[Any]]) -> dict[int, Fit[Any]]:
        return {
            head_dim: fit(own, rates[_dtype(own)], Ceiling(round_up(products[_dtype(own)]), round_up(bandwidth)))
            for head_dim, own in _by_head_dim(samples, family).items()
        }

    reference = next(iter(rates.values())).bytes_per_s
    share = elementwise_share(_of(samples, "elementwise"), reference)
    decode, prefill = attention("decode_attention", fit_decode), attention("prefill_attention", fit_prefill)
    fits = Fits(rates, gemm, decode, prefill, share)
    return replace(fits, notes=(*few, *sparse, *_rough(fits)))


def _rates(
    bandwidth: float, products: Mapping[str, float], base: HardwareProfile | None
) -> tuple[dict[str, Rates], list[str]]:
    """Peak and bandwidth per dtype, and what had to be left out."""
    if base is None:
        peaks, notes = _without_sparse({dtype: round_up(rate) for dtype, rate in products.items()})
        return {dtype: Rates(peak, round_up(bandwidth)) for dtype, peak in peaks.items()}, notes
    if bandwidth > BANDWIDTH_MARGIN * base.hbm_bytes_per_s:
        raise _other_device(base, "bandwidth", bandwidth, base.hbm_bytes_per_s, "bytes/s")
    for dtype, rate in products.items():
        if rate > CLOCK_MARGIN * base.peak_flops_per_s[dtype]:
            raise _other_device(base, f"{dtype} rate", rate, base.peak_flops_per_s[dtype], "FLOP/s")
    return {dtype: Rates(base.peak_flops_per_s[dtype], base.hbm_bytes_per_s) for dtype in products}, []


def _require(samples: Sequence[Sample], families: Sequence[str]) -> None:
    """Every family must have been measured, and attention's dtype as a product too: its peak is that one."""
    for family in families:
        if not _of(samples, family):
            raise RidgelineError(f"no {family} kernel could be measured\n  cure: {ENOUGH_OF_ALL}")
    attention = {sample.kernel.dtype for sample in samples if "attention" in sample.kernel.family}
    missing = attention - {sample.kernel.dtype for sample in _of(samples, "gemm")}
    if "gemm" in families and missing:
        raise RidgelineError(f"too few {missing.pop()} products could be measured\n  cure: {ENOUGH_OF_ALL}")


def _with_enough(samples: Sequence[Sample], bandwidth: float) -> tuple[list[Sample], list[str]]:
    """Without the dtypes and head sizes that too few kernels were measured of, and a note for each."""
    curves = {sample.kernel.curve for sample in samples if "." in sample.kernel.curve}
    usable = [sample for sample in samples if not sample.kernel.held_out and from_memory(sample, round_up(bandwidth))]
    count = Counter(sample.kernel.curve for sample in usable)
    few = sorted(curve for curve in curves if count[curve] < LEAST_SAMPLES)
    notes = [f"{curve} left out: {count[curve]} usable kernels, a curve needs {LEAST_SAMPLES}" for curve in few]
    return [sample for sample in samples if sample.kernel.curve not in few], notes


def _rough(fits: Fits) -> list[str]:
    """A note for each curve that hardly holds: most often other work disturbed the device."""
    return [
        f"{key} is a rough fit, {fit.error:.0%} off in the median: measure again on an idle device"
        for key, fit in fits.rows().items()
        if fit.error > ROUGH
    ]


def _without_sparse(peaks: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Without an fp8 figure that no dense product reaches beside its 16-bit one: that one was not at its best."""
    half = peaks.get("bf16", peaks.get("fp16"))
    if half is None:
        raise RidgelineError(
            "no 16-bit product could be measured\n  cure: measure without --quick, or on an idle device"
        )
    if peaks.get("fp8", 0.0) <= SPARSE_RATIO * half:
        return dict(peaks), []
    kept = {dtype: peak for dtype, peak in peaks.items() if dtype != "fp8"}
    return kept, [f"fp8 left out: {peaks['fp8'] / half:.2f} times the 16-bit rate, which was disturbed"]


def _other_device(base: HardwareProfile, what: str, measured: float, datasheet: float, unit: str) -> RidgelineError:
    return RidgelineError(
        f"--base {base.name}: the measured {what} is {measured:.4g} {unit}, its datasheet says {datasheet:.4g}\n"
        "  cure: give the profile of this device, or none, so that the measured ceilings become the peaks"
    )


def _of(samples: Sequence[Sample], family: str, dtype: str | None = None) -> list[Sample]:
    return [s for s in samples if s.kernel.family == family and dtype in {None, s.kernel.dtype}]


def _by_head_dim(samples: Sequence[Sample], family: str) -> dict[int, list[Sample]]:
    grouped: dict[int, list[Sample]] = {}
    for sample in _of(samples, family):
        grouped.setdefault(_head_dim(sample.kernel), []).append(sample)
    return grouped


def _head_dim(kernel: Kernel) -> int:
    assert isinstance(kernel, DecodeAttention | PrefillAttention), kernel
    return kernel.head_dim


def _dtype(samples: Sequence[Sample]) -> str:
    return samples[0].kernel.dtype
