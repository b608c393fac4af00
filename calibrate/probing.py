"""Which dtypes and kernels this device really has: tried once, the result compared, the speed too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrate.bench import Timer, measure
from calibrate.kernels import DecodeAttention, Gemm
from calibrate.workbench import TORCH_NAMES, Workbench

PROBE_TOKENS, PROBE_WIDTH = 64, 1024
PROBE_S = 0.1
TOLERANCE = 0.1
"""Of the largest value; a wrong layout or a missing scale is off by far more."""
REFUSALS = (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError)
"""What torch raises for an operation or a dtype it lacks on a device."""


def usable_dtypes(bench: Workbench, timer: Timer, wanted: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The dtypes whose products are right, and why not the others.

    An 8-bit dtype must also beat the 16-bit one: where it does not, torch emulates it.
    """
    usable: list[str] = []
    reasons: dict[str, str] = {}
    half_s: float | None = None
    for dtype in wanted:
        try:
            seconds = _product_s(bench, timer, dtype)
        except REFUSALS as error:
            reasons[dtype] = f"torch has no such product here ({_first_line(error)})"
            continue
        if seconds is None:
            reasons[dtype] = "its products come out wrong here"
        elif dtype in {"fp8", "int8"} and half_s is not None and seconds > half_s:
            reasons[dtype] = f"emulated here: {seconds / half_s:.1f} times the time of the 16-bit product"
        else:
            usable.append(dtype)
            half_s = min(seconds, half_s or seconds) if dtype in {"bf16", "fp16"} else half_s
    return usable, reasons


def prefers_products(bench: Workbench, timer: Timer, dtype: str, head_dim: int) -> bool:
    """Whether decode attention by batched products is faster than the fused kernel at a middle shape."""
    kernel = DecodeAttention(dtype=dtype, sequences=4, heads=32, kv_heads=8, head_dim=head_dim, context_tokens=1024)
    seconds = []
    for bench.decode_by_products in (False, True):
        seconds.append(measure(timer, bench.call(kernel), PROBE_S).seconds)
    return seconds[1] < seconds[0]


def _product_s(bench: Workbench, timer: Timer, dtype: str) -> float | None:
    """Seconds of a middling product; None if it is wrong."""
    torch = bench.torch
    if not hasattr(torch, TORCH_NAMES[dtype]):
        raise AttributeError(f"this torch has no {TORCH_NAMES[dtype]}")
    kernel = Gemm(dtype=dtype, tokens=PROBE_TOKENS, depth=PROBE_WIDTH, columns=PROBE_WIDTH)
    call = bench.call(kernel)
    if not _right(bench, kernel, call(0)):
        return None
    return measure(timer, call, PROBE_S).seconds


def _right(bench: Workbench, kernel: Gemm, result: Any) -> bool:
    """Equal to the product of the same operands in fp32 on the host, but for rounding."""
    block = bench.pool(kernel.dtype)[: kernel.depth * kernel.columns].cpu().float()
    x = block[: kernel.tokens * kernel.depth].view(kernel.tokens, kernel.depth)
    expected = x @ block.view(kernel.columns, kernel.depth).t()
    error = (result.cpu().float() - expected).abs().max()
    return bool(error <= TOLERANCE * expected.abs().max())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
