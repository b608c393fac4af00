"""What-ifs: a profile with figures replaced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sim.errors import Problem, ScenarioError
from sim.hardware.guards import Fault, peak_faults
from sim.hardware.profile import HardwareProfile, HostProfile


def with_overrides(
    profile: HardwareProfile,
    *,
    peak_flops_per_s: Mapping[str, float] | None = None,
    hbm_bytes_per_s: float | None = None,
    memory_bytes: int | None = None,
    host_slowdown: float | None = None,
) -> HardwareProfile:
    """``profile`` with these figures instead of its own; curves stay shares of the new peaks, notes say what changed.

    Raises ScenarioError for figures no device has, as reading a profile does. FP8 is compared with BF16 only if it is
    itself replaced: halving BF16 alone is a fair what-if, typing a sparse FP8 is not.
    """
    given = dict(peak_flops_per_s or {})
    peaks = {**profile.peak_flops_per_s, **given}
    scalars = {"hbm_bytes_per_s": hbm_bytes_per_s, "memory_bytes": memory_bytes, "host_slowdown": host_slowdown}
    changed = {f"peak_flops_per_s.{dtype}": peak for dtype, peak in given.items()}
    changed |= {key: value for key, value in scalars.items() if value is not None}
    faults = [
        Fault((key,), f"{value!r} is not a positive number", "give a positive SI number")
        for key, value in changed.items()
        if not (math.isfinite(value) and value > 0)
    ]
    if not faults:
        faults = [fault for fault in peak_faults(peaks) if fault.path[-1] in given]
    if faults:
        raise ScenarioError([Problem(profile.name, None, ".".join(f.path), f.problem, f.cure) for f in faults])
    before = {f"peak_flops_per_s.{dtype}": peak for dtype, peak in profile.peak_flops_per_s.items()}
    before |= {"hbm_bytes_per_s": profile.hbm_bytes_per_s, "memory_bytes": profile.memory_bytes}
    before |= {"host_slowdown": profile.host.slowdown}
    notes = tuple(f"what-if: {key} {value:.6g} instead of {_shown(before.get(key))}" for key, value in changed.items())
    return replace(
        profile,
        peak_flops_per_s=peaks,
        hbm_bytes_per_s=hbm_bytes_per_s or profile.hbm_bytes_per_s,
        memory_bytes=int(memory_bytes or profile.memory_bytes),
        host=profile.host if host_slowdown is None else _slowed(profile.host, host_slowdown),
        sources={**profile.sources, **dict.fromkeys(changed, "what-if")},
        notes=profile.notes + notes,
    )


def _slowed(host: HostProfile, slowdown: float) -> HostProfile:
    return replace(host, slowdown=slowdown, source="what-if", calibrated=False)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
