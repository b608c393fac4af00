"""What a device was seen to do, and the refusal of curves that promise more."""

from __future__ import annotations

from typing import NamedTuple

from calibrate.kernels import DecodeAttention, Gemm, PrefillAttention
from calibrate.predict import Rates, decode_seconds, gemm_seconds, prefill_seconds
from sim.errors import RidgelineError
from sim.hardware.profile import DecodeAttentionCurve, GemmCurve, PrefillAttentionCurve

ABOVE = 1.02
"""How far a curve may predict above the measured ceiling: rounding, and the spread of the ceiling itself."""


class Ceiling(NamedTuple):
    """The highest rates seen on this device: of products in the dtype, of copying and reading."""

    flops_per_s: float
    bytes_per_s: float


class FitError(RidgelineError):
    """A curve that promises more than the device was ever seen to do, or too few samples for one."""


def refuse_gemm_above(curve: GemmCurve, rates: Rates, ceiling: Ceiling) -> None:
    """Raise FitError if a very large or a one-token product would beat what was measured."""
    large = Gemm(dtype="bf16", tokens=2**16, depth=2**14, columns=2**16)
    single = Gemm(dtype="bf16", tokens=1, depth=2**14, columns=2**16)
    _refuse("gemm", large.flops / gemm_seconds(curve, [large], rates)[0], ceiling.flops_per_s, "FLOP/s")
    _refuse("gemm", single.cold_bytes / gemm_seconds(curve, [single], rates)[0], ceiling.bytes_per_s, "bytes/s")


def refuse_decode_above(curve: DecodeAttentionCurve, rates: Rates, ceiling: Ceiling) -> None:
    """Raise FitError if a very large batch would read its keys and values faster than memory was seen to."""
    large = DecodeAttention(dtype="bf16", sequences=1024, heads=8, kv_heads=8, head_dim=128, context_tokens=2**17)
    seconds = decode_seconds(curve, [large], rates)[0]
    _refuse("decode_attention", large.cold_bytes / seconds, ceiling.bytes_per_s, "bytes/s")


def refuse_prefill_above(curve: PrefillAttentionCurve, rates: Rates, ceiling: Ceiling) -> None:
    """Raise FitError if a very long prompt would be attended to faster than products were seen to run."""
    large = PrefillAttention(dtype="bf16", sequences=64, heads=128, head_dim=128, tokens=2**17)
    seconds = prefill_seconds(curve, [large], rates)[0]
    _refuse("prefill_attention", large.flops / seconds, ceiling.flops_per_s, "FLOP/s")


def _refuse(name: str, predicted: float, measured: float, unit: str) -> None:
    if predicted > ABOVE * measured:
        raise FitError(
            f"the fitted {name} curve promises {predicted:.4g} {unit}, the highest measured is {measured:.4g}\n"
            "  cure: measure again on an idle device, without --quick"
        )
