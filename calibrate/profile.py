"""Samples and fits -> a hardware profile, with where every figure comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrate.ceiling import Ceiling
from calibrate.device import DeviceFacts
from calibrate.fit import Fit, elementwise_share, fit_decode, fit_gemm, fit_prefill, moe_from_gemm, rounded
from calibrate.kernels import DecodeAttention, Kernel, PrefillAttention, Sample
from calibrate.predict import Rates
from sim.errors import RidgelineError
from sim.hardware import Efficiency, GemmCurve, HardwareProfile, HostProfile
from sim.hardware.guards import SPARSE_RATIO
from sim.hardware.profile import CLOCK_MARGIN

FAMILIES = ("bandwidth", "elementwise", "gemm", "decode_attention", "prefill_attention")
BANDWIDTH_MARGIN = 1.05
"""Measured bandwidth may exceed a datasheet's by this before the datasheet is taken for another device's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a reader needs to repeat the measurement."""

    facts: DeviceFacts
    date: str
    command: str
    decode_kernel: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fits:
    """All curves, by dtype and head size."""

    rates: Mapping[str, Rates]
    gemm: Mapping[str, Fit[Any]]
    decode_attention: Mapping[int, Fit[Any]]
    prefill_attention: Mapping[int, Fit[Any]]
    elementwise_memory: float
    notes: tuple[str, ...] = field(default=())

    def rows(self) -> dict[str, Fit[Any]]:
        """Fits by their key in ``efficiency.error``."""
        families = {
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
    for family in FAMILIES:
        if not _of(samples, family):
            raise RidgelineError(
                f"no {family} kernel could be measured\n  cure: free memory, or measure without --quick"
            )
    bandwidth, products = best_bandwidth(samples), best_products(samples)
    rates, notes = _rates(bandwidth, products, base)
    gemm = {
        dtype: fit_gemm(
            _of(samples, "gemm", dtype=dtype), rate, Ceiling(round_up(products[dtype]), round_up(bandwidth))
        )
        for dtype, rate in rates.items()
    }
    attention: dict[str, dict[int, Fit[Any]]] = {}
    for family, fit in (("decode_attention", fit_decode), ("prefill_attention", fit_prefill)):
        by_head = _by_head_dim(samples, family)
        attention[family] = {
            head_dim: fit(own, rates[_dtype(own)], Ceiling(round_up(products[_dtype(own)]), round_up(bandwidth)))
            for head_dim, own in by_head.items()
        }
    reference = next(iter(rates.values())).bytes_per_s
    share = elementwise_share(_of(samples, "elementwise"), reference)
    return Fits(rates, gemm, attention["decode_attention"], attention["prefill_attention"], share, tuple(notes))


def build_profile(
    samples: Sequence[Sample], fits: Fits, provenance: Provenance, *, base: HardwareProfile | None, name: str | None
) -> HardwareProfile:
    """The base with measured efficiencies, or a new profile whose peaks are the measured ceilings."""
    efficiency = _efficiency(samples, fits, provenance, base)
    notes = (*fits.notes, *provenance.notes)
    if base is not None:
        return replace(base, name=name or base.name, efficiency=efficiency, notes=(*base.notes, *notes))
    facts = provenance.facts
    here = f"measured on this device on {provenance.date} (no datasheet): the ceiling seen is taken for the peak"
    return HardwareProfile(
        name=name or slug(facts.name),
        product=facts.name,
        vendor=facts.vendor,
        architecture=facts.architecture,
        peak_flops_per_s={dtype: rate.flops_per_s for dtype, rate in fits.rates.items()},
        hbm_bytes_per_s=next(iter(fits.rates.values())).bytes_per_s,
        memory_bytes=facts.memory_bytes,
        l2_bytes=facts.cache_bytes,
        scale_up=None,
        pcie_bytes_per_s=None,
        network_bytes_per_s=None,
        power_w=None,
        price=None,
        efficiency=efficiency,
        host=_host(provenance.date),
        sources={
            "peak_flops_per_s": f"{here}; fastest matrix product per dtype, rounded up to three digits",
            "hbm_bytes_per_s": f"{here}; the better of copying and reading, rounded up to three digits",
            "memory_bytes": "the operating system" if facts.kind == "cpu" else f"torch {facts.torch_version}",
            "l2_bytes": "last-level cache as reported" if facts.cache_bytes else "not reported",
        },
        notes=notes,
    )


def slug(text: str) -> str:
    """A profile's name: lower case, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _efficiency(
    samples: Sequence[Sample], fits: Fits, provenance: Provenance, base: HardwareProfile | None
) -> Efficiency:
    gemm = {dtype: rounded(fit.curve) for dtype, fit in fits.gemm.items()}
    if "bf16" not in gemm and (base is None or "bf16" not in base.efficiency.gemm):
        # Dtypes without a row take bf16's, so there must be one.
        gemm["bf16"] = gemm["fp16"] if "fp16" in gemm else next(iter(gemm.values()))
    moe = {dtype: moe_from_gemm(curve) for dtype, curve in gemm.items()}
    own = Efficiency(
        source=_source(samples, fits, provenance, base),
        date=provenance.date,
        calibrated=True,
        gemm=gemm,
        decode_attention={dim: rounded(fit.curve) for dim, fit in fits.decode_attention.items()},
        prefill_attention={dim: rounded(fit.curve) for dim, fit in fits.prefill_attention.items()},
        moe=moe,
        all_reduce={},
        elementwise_memory=float(f"{fits.elementwise_memory:.3g}"),
        error={key: round(fit.error, 4) for key, fit in fits.rows().items()},
    )
    return own if base is None else _over_base(own, base.efficiency)


def _over_base(own: Efficiency, base: Efficiency) -> Efficiency:
    """Measured rows replace the base's; what one device alone cannot measure stays."""
    return replace(
        own,
        gemm={**base.gemm, **own.gemm},
        decode_attention={**base.decode_attention, **own.decode_attention},
        prefill_attention={**base.prefill_attention, **own.prefill_attention},
        moe=dict(base.moe) or own.moe,
        all_reduce=base.all_reduce,
        mixed_step_decode=base.mixed_step_decode,
        error={key: error for key, error in base.error.items() if key.startswith(("moe", "all_reduce"))}
        | dict(own.error),
    )


def _source(samples: Sequence[Sample], fits: Fits, provenance: Provenance, base: HardwareProfile | None) -> str:
    facts = provenance.facts
    spread = float(np.median([sample.spread for sample in samples]))
    parts = [
        f"measured on {facts.name} with torch {facts.torch_version} by `{provenance.command}`",
        f"{len(samples)} kernels, medians, repeats spread by {spread:.1%} (median interquartile range)",
        "errors are medians over shapes the fits never saw, where at least three were measured",
        f"decode attention is {provenance.decode_kernel}, not an engine's paged kernel",
    ]
    if base is None:
        parts += ["experts (moe) are derived from the gemm curves, not measured", "no all-reduce: one device"]
    else:
        parts += [
            f"datasheet figures, experts (moe), all-reduce, the mixed-step factor and rows of other dtypes and head sizes "
            f"are those of the profile {base.name}: {base.efficiency.source}"
        ]
    cached = sum(fit.cached for fit in fits.rows().values())
    if cached:
        parts.append(f"{cached} kernels ran from cache and were left out")
    return "; ".join(parts)


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


def _host(date: str) -> HostProfile:
    return HostProfile(
        slowdown=1.0,
        source="assumed equal to the reference host of the engine overheads; measure with `calibrate server`",
        date=date,
        calibrated=False,
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
