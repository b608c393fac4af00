"""All-reduce curves for links nobody has measured, from a sibling's measured ones; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.hardware.profile import CollectiveCurve, Link

PCIE_SHARE = 0.6
"""Share of the raw PCIe rate a two-device all-reduce reaches (an estimate: measure it)."""
PCIE_PAIR_LATENCY_S = 10e-6
PCIE_NCCL_LATENCY_S = 150e-6
"""Beyond two PCIe devices engines fall back to NCCL, whose call costs about this much."""
GROUPS = (2, 4, 8)


def reach_bytes_per_s(link: Link, devices: int) -> float:
    """What one device can send into a group: all of its links on a switch, only those to the group on a mesh."""
    return min(link.bytes_per_s, link.pair_bytes_per_s * (devices - 1))


def pcie_all_reduce(pcie_bytes_per_s: float, devices: int) -> CollectiveCurve:
    """Over PCIe: custom kernels between two devices, NCCL's ring beyond (each byte crosses 2(n-1)/n times)."""
    latency_s = PCIE_PAIR_LATENCY_S if devices == 2 else PCIE_NCCL_LATENCY_S
    crossings = 2 * (devices - 1) / devices
    return CollectiveCurve(latency_s=latency_s, bytes_per_s=PCIE_SHARE * pcie_bytes_per_s / crossings)


def scaled_all_reduce(
    measured: Mapping[int, CollectiveCurve],
    measured_on: Link | None,
    link: Link | None,
    pcie_bytes_per_s: float | None,
) -> dict[int, CollectiveCurve]:
    """A sibling's curves on another link: its latency, its bandwidth in proportion to what a device reaches.

    Groups larger than ``link`` joins go over PCIe (bridged pairs are NVLink between two, PCIe beyond), and so does
    everything where the sibling has no link to scale. Without PCIe such groups have no curve.
    """
    curves: dict[int, CollectiveCurve] = {}
    for devices in sorted({*measured, *GROUPS}):
        sibling = measured.get(devices)
        if sibling and measured_on and link and devices <= link.devices:
            faster = reach_bytes_per_s(link, devices) / reach_bytes_per_s(measured_on, devices)
            curves[devices] = replace(sibling, bytes_per_s=sibling.bytes_per_s * faster)
        elif pcie_bytes_per_s is not None:
            curves[devices] = pcie_all_reduce(pcie_bytes_per_s, devices)
    return curves
