"""Which peak a product runs at."""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import RidgelineError

ACTIVATION_BYTES = 2
"""Activations are 16-bit between operators."""
SIXTEEN_BIT = ("bf16", "fp16", "fp32")
ORDER = {
    "fp32": ("fp32",),
    "bf16": SIXTEEN_BIT,
    "fp16": ("fp16", "bf16", "fp32"),
    "fp8": ("fp8", *SIXTEEN_BIT),
    "int8": ("int8", *SIXTEEN_BIT),
    "int4": SIXTEEN_BIT,
    "mxfp4": SIXTEEN_BIT,
    "nvfp4": ("fp4", *SIXTEEN_BIT),
}
"""Compute dtype by weight dtype, best first. INT4 and MXFP4 weights are expanded and multiplied in 16 bits (W4A16)."""


def compute_dtype(weight_dtype: str, peak_flops_per_s: Mapping[str, float]) -> str:
    """The dtype a weight is multiplied in on a device. Raises RidgelineError where it has none of them."""
    for dtype in ORDER[weight_dtype]:
        if dtype in peak_flops_per_s:
            return dtype
    raise RidgelineError(
        f"the device states no peak for {weight_dtype} weights\n  cure: add one of {ORDER[weight_dtype]}"
    )
