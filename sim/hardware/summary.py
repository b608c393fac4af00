"""What `sim hardware NAME --json` answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sim.hardware.profile import HardwareProfile, Link


def hardware_summary(profile: HardwareProfile) -> dict[str, Any]:
    """A profile as JSON: peaks and ridge points per dtype, links, price, and where every figure comes from."""
    efficiency = profile.efficiency
    return {
        "name": profile.name,
        "product": profile.product,
        "vendor": profile.vendor,
        "architecture": profile.architecture,
        "peak_flops_per_s": dict(profile.peak_flops_per_s),
        "hbm_bytes_per_s": profile.hbm_bytes_per_s,
        "memory_bytes": profile.memory_bytes,
        "ridge_flops_per_byte": {dtype: profile.ridge_flops_per_byte(dtype) for dtype in profile.peak_flops_per_s},
        "l2_bytes": profile.l2_bytes,
        "links": {
            "scale_up": _link(profile.scale_up),
            "pcie_bytes_per_s": profile.pcie_bytes_per_s,
            "network_bytes_per_s": profile.network_bytes_per_s,
        },
        "power_w": profile.power_w,
        "price": profile.price and {"usd_per_hour": profile.price.usd_per_hour, "source": profile.price.source},
        "calibration": {
            "source": efficiency.source,
            "date": efficiency.date,
            "calibrated": efficiency.calibrated,
            "error": dict(efficiency.error),
            "passes": [{**asdict(one), "error": one.error} for one in efficiency.passes],
        },
        "host": {
            "slowdown": profile.host.slowdown,
            "source": profile.host.source,
            "date": profile.host.date,
            "calibrated": profile.host.calibrated,
            "overheads": {engine: asdict(overheads) for engine, overheads in profile.host.overheads.items()},
        },
        "sources": dict(profile.sources),
        "notes": list(profile.notes),
    }


def _link(link: Link | None) -> dict[str, Any] | None:
    if link is None:
        return None
    return {
        "name": link.name,
        "bytes_per_s": link.bytes_per_s,
        "pair_bytes_per_s": link.pair_bytes_per_s,
        "devices": link.devices,
    }
