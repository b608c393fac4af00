"""Samples and fits -> a hardware profile, with where every figure comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrate.device import DeviceFacts
from calibrate.fit import moe_from_gemm, rounded
from calibrate.fitting import Fits
from calibrate.kernels import Sample
from sim.hardware import Efficiency, HardwareProfile, HostProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a reader needs to repeat the measurement."""

    facts: DeviceFacts
    date: str
    command: str
    decode_kernel: str
    notes: tuple[str, ...] = ()


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
        product=facts.name.removeprefix(f"{facts.vendor} "),
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
            f"all else (datasheet figures, moe, all-reduce, mixed steps, other dtypes and heads) as in {base.name}",
            f"whose curves are {base.efficiency.source}",
        ]
    cached = sum(fit.cached for fit in fits.rows().values())
    if cached:
        parts.append(f"{cached} kernels ran from cache and were left out")
    return "; ".join(parts)


def _host(date: str) -> HostProfile:
    return HostProfile(
        slowdown=1.0,
        source="assumed equal to the reference host of the engine overheads, not measured",
        date=date,
        calibrated=False,
    )
