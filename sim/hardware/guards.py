"""Figures no device has: what a profile or a what-if is refused for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sim.hardware.profile import PEAK_DTYPES, Link
from sim.resources import nearest

SPARSE_RATIO = 2.1
"""Dense FP8 is twice BF16 (2.02 where two clocks are printed); a sparse figure makes it four times."""


class Fault(NamedTuple):
    """Something wrong with a figure: its key path, what, and how to mend it."""

    path: tuple[str, ...]
    problem: str
    cure: str


def peak_faults(peaks: Mapping[str, float]) -> list[Fault]:
    """What is wrong with a device's peaks as a whole."""
    faults = [
        Fault(("peak_flops_per_s", dtype), f"there is no dtype {dtype!r}", nearest(dtype, list(PEAK_DTYPES)))
        for dtype in peaks
        if dtype not in PEAK_DTYPES
    ]
    half = peaks.get("bf16", peaks.get("fp16"))
    if half is None:
        faults.append(Fault(("peak_flops_per_s",), "neither bf16 nor fp16 is given", "add the dense 16-bit peak"))
    return faults if half is None else faults + sparse_faults(peaks, half)


def sparse_faults(peaks: Mapping[str, float], half: float) -> list[Fault]:
    """FP8 above 2.1 times the 16-bit peak: the data sheet's figure with sparsity."""
    fp8 = peaks.get("fp8")
    if fp8 is None or fp8 <= SPARSE_RATIO * half:
        return []
    problem = f"fp8 {fp8:.5g} is {fp8 / half:.2f} times the 16-bit peak {half:.5g}: a sparse figure"
    cure = f"peaks are dense: halve it ({fp8 / 2:.5g}), or give bf16 as well where that changed"
    return [Fault(("peak_flops_per_s", "fp8"), problem, cure)]


def link_faults(link: Link | None) -> list[Fault]:
    """A pair cannot exchange more than a device has."""
    if link is None or link.pair_bytes_per_s <= link.bytes_per_s:
        return []
    problem = f"a pair exchanges {link.pair_bytes_per_s:.5g} bytes/s, more than the device's {link.bytes_per_s:.5g}"
    return [Fault(("scale_up", "pair_bytes_per_s"), problem, "both are one direction: do not mix with bidirectional")]
