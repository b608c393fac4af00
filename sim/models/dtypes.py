"""Bytes of numbers as stored, scales included."""

from __future__ import annotations

from sim.models.spec import DType

BITS: dict[str, int] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "mxfp4": 4, "nvfp4": 4}

SCALE_BITS_PER_WEIGHT: dict[str, float] = {
    "mxfp4": 8 / 32,  # one E8M0 byte per 32 weights (OCP Microscaling 1.0)
    "nvfp4": 8 / 16,  # one FP8 byte per 16 weights; the FP32 scale of the whole tensor does not count
}
INT4_GROUP = 128
"""Weights per scale of int4 formats where nobody says otherwise."""
SCALE_BITS, ZERO_POINT_BITS = 16, 4


def bytes_per_element(dtype: str) -> float:
    """Of the numbers alone, without scales."""
    return BITS[dtype] / 8


def stored_bytes(elements: float, dtype: DType, scale_block: int | None = None, *, zero_points: bool = False) -> float:
    """Bytes of a weight tensor with its scales. ``scale_block``: int4 group size (weights per scale) or the edge of
    the square that shares an FP32 scale (fp8); None: one per tensor or per row, too few to count.
    """
    bits = float(BITS[dtype]) + SCALE_BITS_PER_WEIGHT.get(dtype, 0.0)
    if dtype == "int4" and scale_block:
        bits += (SCALE_BITS + ZERO_POINT_BITS * zero_points) / scale_block
    if dtype == "fp8" and scale_block:
        bits += 32 / scale_block**2
    return elements * bits / 8
