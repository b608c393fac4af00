"""Samples -> curves: bounded least squares on the logarithm of time, so that every shape counts alike.

Efficiencies are bounded by what the device was seen to do. Samples that beat the measured bandwidth were served from
cache and are left out; a curve that beats the ceiling anyway is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibrate.ceiling import Ceiling, FitError, refuse_decode_above, refuse_gemm_above, refuse_prefill_above
from calibrate.kernels import DecodeAttention, Gemm, Kernel, PrefillAttention, Sample
from calibrate.predict import Floats, Rates, decode_seconds, gemm_seconds, prefill_seconds
from sim.hardware.profile import (
    CLOCK_MARGIN,
    DecodeAttentionCurve,
    GemmCurve,
    MoeCurve,
    PrefillAttentionCurve,
)

CACHED = 1.1
"""A sample this many times above the measured bandwidth did not come from memory."""
OUTLIER = 0.1
"""Relative errors beyond this weigh less than their square."""
PULL = 0.01
"""A weak pull towards the starting values settles what the samples say nothing about."""
LEAST_FIGURE = 1e-9
LEAST_SAMPLES = 6
LEAST_HELD_OUT = 3
LAUNCH_S = (1e-8, 1e-2)
SHARE = (1e-3, 1.0)
BOUND_BY_COMPUTE = 0.8
"""Decode attention gets a compute term where that takes the misfit below this share of the misfit without."""

Curve = TypeVar("Curve")
K = TypeVar("K", bound=Kernel)
Predict = Callable[[Curve, Sequence[K], Rates], Floats]


@dataclass(frozen=True, slots=True)
class Fit(Generic[Curve]):
    """A curve and how well it holds: median absolute relative errors."""

    curve: Curve
    fitted: int
    fitted_error: float
    held_out: int
    held_out_error: float | None
    """On shapes the fit never saw; None with fewer than three."""
    cached: int
    """Samples left out because they ran from cache."""

    @property
    def error(self) -> float:
        """The stricter of the two that there is."""
        return self.fitted_error if self.held_out_error is None else self.held_out_error


class _Parameter(NamedTuple):
    """A bounded parameter; fitted on a logarithmic scale, ``offset`` lets it reach 0."""

    start: float
    low: float
    high: float
    offset: float = 0.0

    def encode(self, value: float) -> float:
        return float(np.log(min(max(value, self.low), self.high) + self.offset))

    def decode(self, value: float) -> float:
        return min(max(float(np.exp(value)) - self.offset, self.low), self.high)


def fit_gemm(samples: Sequence[Sample], rates: Rates, ceiling: Ceiling) -> Fit[GemmCurve]:
    """Launch, both efficiencies, tile padding, narrow outputs, and the softness of the ridge."""
    memory, compute = _shares(rates, ceiling)
    parameters = {
        "memory": memory,
        "compute": compute,
        "pad_tokens": _Parameter(4.0, 0.0, 512.0, 1.0),
        "narrow_columns": _Parameter(16.0, 0.0, 8192.0, 1.0),
        "softness": _Parameter(3.0, 1.0, 16.0),
    }
    fit = _fit("gemm", GemmCurve, gemm_seconds, parameters, samples, Gemm, rates, ceiling)
    refuse_gemm_above(fit.curve, rates, ceiling)
    return fit


def fit_decode(samples: Sequence[Sample], rates: Rates, ceiling: Ceiling) -> Fit[DecodeAttentionCurve]:
    """Launch, bandwidth, filling the device with heads, and a cost per sequence; compute only where it shows."""
    memory, compute = _shares(rates, ceiling)
    parameters = {
        "memory": memory,
        "per_sequence_s": _Parameter(1e-8, 0.0, 1e-3, 1e-9),
        "head_fill": _Parameter(1.0, 0.0, 256.0, 0.1),
    }
    name = "decode_attention"
    plain = _fit(name, DecodeAttentionCurve, decode_seconds, parameters, samples, DecodeAttention, rates, ceiling)
    parameters["compute"] = compute
    full = _fit(name, DecodeAttentionCurve, decode_seconds, parameters, samples, DecodeAttention, rates, ceiling)
    fit = full if full.fitted_error < BOUND_BY_COMPUTE * plain.fitted_error else plain
    refuse_decode_above(fit.curve, rates, ceiling)
    return fit


def fit_prefill(samples: Sequence[Sample], rates: Rates, ceiling: Ceiling) -> Fit[PrefillAttentionCurve]:
    """Launch, both efficiencies, and the ramps of short prompts and few heads."""
    memory, compute = _shares(rates, ceiling)
    parameters = {
        "memory": memory,
        "compute": compute,
        "ramp_tokens": _Parameter(8.0, 0.0, 8192.0, 1.0),
        "head_ramp": _Parameter(0.5, 0.0, 256.0, 0.1),
    }
    name = "prefill_attention"
    fit = _fit(name, PrefillAttentionCurve, prefill_seconds, parameters, samples, PrefillAttention, rates, ceiling)
    refuse_prefill_above(fit.curve, rates, ceiling)
    return fit


def moe_from_gemm(gemm: GemmCurve) -> MoeCurve:
    """Routed experts were not measured: two grouped products at the GEMM's efficiencies, uniform routing."""
    return MoeCurve(
        launch_s=2 * gemm.launch_s, memory=gemm.memory, compute=gemm.compute, pad_tokens=gemm.pad_tokens, skew=1.0
    )


def elementwise_share(samples: Sequence[Sample], bandwidth_bytes_per_s: float) -> float:
    """The median share of bandwidth of norms and additions, at most all of it."""
    rates = [sample.kernel.traffic_bytes / sample.seconds for sample in samples]
    return min(1.0, float(np.median(rates)) / bandwidth_bytes_per_s)


def _fit(
    name: str,
    make: Callable[..., Curve],
    predict: Predict[Curve, Any],
    parameters: dict[str, _Parameter],
    samples: Sequence[Sample],
    kind: type[Kernel],
    rates: Rates,
    ceiling: Ceiling,
) -> Fit[Curve]:
    own = [sample for sample in samples if isinstance(sample.kernel, kind)]
    kept = [sample for sample in own if from_memory(sample, ceiling.bytes_per_s)]
    fitted = [sample for sample in kept if not sample.kernel.held_out]
    held_out = [sample for sample in kept if sample.kernel.held_out]
    if len(fitted) < LEAST_SAMPLES:
        raise FitError(
            f"{name}: {len(fitted)} usable samples, a curve needs {LEAST_SAMPLES}\n"
            "  cure: measure without --quick, with more free memory, or on an idle device"
        )
    curve = _solve(make, predict, {"launch_s": _launch(fitted), **parameters}, fitted, rates)
    return Fit(
        curve=curve,
        fitted=len(fitted),
        fitted_error=_median_error(predict, curve, fitted, rates),
        held_out=len(held_out),
        held_out_error=_median_error(predict, curve, held_out, rates) if len(held_out) >= LEAST_HELD_OUT else None,
        cached=len(own) - len(kept),
    )


def _solve(
    make: Callable[..., Curve],
    predict: Predict[Curve, Any],
    parameters: dict[str, _Parameter],
    samples: Sequence[Sample],
    rates: Rates,
) -> Curve:
    """The best of a few starts: the shape of the curves has local minima where two terms trade places."""
    from scipy.optimize import least_squares

    kernels = [sample.kernel for sample in samples]
    seconds = np.log([sample.seconds for sample in samples])
    low = np.array([parameter.encode(parameter.low) for parameter in parameters.values()])
    high = np.array([parameter.encode(parameter.high) for parameter in parameters.values()])
    first = np.array([parameter.encode(parameter.start) for parameter in parameters.values()])

    def curve(x: Floats) -> Curve:
        return make(**{name: p.decode(value) for (name, p), value in zip(parameters.items(), x, strict=True)})

    def misfit(x: Floats) -> Floats:
        return np.concatenate([np.log(predict(curve(x), kernels, rates)) - seconds, PULL * (x - first)])

    best = None
    for blend in (0.0, 0.3, -0.3):
        start = first + (blend * (high - first) if blend >= 0 else -blend * (low - first))
        found = least_squares(misfit, start, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER)
        best = found if best is None or found.cost < best.cost else best
    assert best is not None
    return curve(best.x)


def _shares(rates: Rates, ceiling: Ceiling) -> tuple[_Parameter, _Parameter]:
    """Bounds of both efficiencies: the peak, or what was measured where that is less."""
    memory = min(1.0, ceiling.bytes_per_s / rates.bytes_per_s)
    compute = min(CLOCK_MARGIN, ceiling.flops_per_s / rates.flops_per_s)
    return (
        _Parameter(0.8 * memory, min(SHARE[0], memory / 2), memory),
        _Parameter(0.8 * compute, min(SHARE[0], compute / 2), compute),
    )


def _launch(samples: Sequence[Sample]) -> _Parameter:
    """No launch takes longer than the fastest kernel."""
    fastest_s = min(sample.seconds for sample in samples)
    high = min(max(fastest_s, 10 * LAUNCH_S[0]), LAUNCH_S[1])
    return _Parameter(high / 2, LAUNCH_S[0], high)


def from_memory(sample: Sample, bandwidth_bytes_per_s: float) -> bool:
    """Whether weights, keys and values can have come from memory; a prefill's operands may well be in cache."""
    prefill = isinstance(sample.kernel, PrefillAttention)
    return prefill or sample.kernel.cold_bytes / sample.seconds <= CACHED * bandwidth_bytes_per_s


def _median_error(predict: Predict[Curve, Any], curve: Curve, samples: Sequence[Sample], rates: Rates) -> float:
    predicted = predict(curve, [sample.kernel for sample in samples], rates)
    measured = np.array([sample.seconds for sample in samples])
    return float(np.median(np.abs(predicted / measured - 1)))


def rounded(curve: Curve, digits: int = 4) -> Curve:
    """The curve with figures of ``digits`` digits, and 0 for what is less than a nanosecond or nothing at all."""
    names = getattr(curve, "__dataclass_fields__", {})
    values = {name: getattr(curve, name) for name in names}
    short = {
        name: float(f"{value:.{digits}g}") if value >= LEAST_FIGURE else 0.0
        for name, value in values.items()
        if isinstance(value, float)
    }
    return replace(curve, **short)  # type: ignore[type-var]
