"""Devices: what each can do, where the figures come from, and how near its kernels come."""

from sim.hardware.overrides import with_overrides
from sim.hardware.profile import (
    CollectiveCurve,
    DecodeAttentionCurve,
    Efficiency,
    ForwardPass,
    GemmCurve,
    HardwareProfile,
    HostOverheads,
    HostProfile,
    Link,
    MoeCurve,
    PrefillAttentionCurve,
    Price,
)
from sim.hardware.reading import load_profile, profile_names
from sim.hardware.summary import hardware_summary
from sim.hardware.writing import save_profile

__all__ = [
    "CollectiveCurve",
    "DecodeAttentionCurve",
    "Efficiency",
    "ForwardPass",
    "GemmCurve",
    "HardwareProfile",
    "HostOverheads",
    "HostProfile",
    "Link",
    "MoeCurve",
    "PrefillAttentionCurve",
    "Price",
    "hardware_summary",
    "load_profile",
    "profile_names",
    "save_profile",
    "with_overrides",
]
