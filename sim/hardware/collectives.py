"""Collectives: measured all-reduce curves, and everything nobody has measured derived from those and from links.

A collective is a ``CollectiveCurve`` over the bytes its function names. Groups that the measured curves do not reach go
over the scale-up link as far as it joins, and beyond over the network, hierarchically. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, log2

from sim.hardware.profile import CollectiveCurve, HardwareProfile, Link

PCIE_SHARE = 0.6
"""Share of the raw PCIe rate a two-device all-reduce reaches (an estimate: measure it)."""
PCIE_PAIR_LATENCY_S = 10e-6
PCIE_NCCL_LATENCY_S = 150e-6
"""Beyond two PCIe devices engines fall back to NCCL, whose call costs about this much."""
GROUPS = (2, 4, 8)
NCCL_SHARE = 0.85
"""Share of a custom all-reduce's bus rate that NCCL's other collectives reach.

This and their latency reproduce the H100 and H200 rows of aiconfigurator-core 0.12 (2 to 8 devices) to 20 % in the
median; between 0.25 and 16 MB they are slower.
"""
NETWORK_SHARE = 0.8
"""Share of the NICs' rate that a collective reaches (an estimate: measure it)."""
NETWORK_LATENCY_S = 15e-6
"""Of one message between nodes, with NCCL's proxy (an estimate: measure it)."""


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


def node_devices(profile: HardwareProfile) -> int:
    """Devices joined without the network: by the scale-up link, or as far as all-reduces were measured."""
    link = profile.scale_up
    return max(1, link.devices if link else 1, *profile.efficiency.all_reduce)


def most_devices(profile: HardwareProfile) -> int | None:
    """Devices that one group can have; None: as many as there are, over the network."""
    return node_devices(profile) if profile.network_bytes_per_s is None else None


def all_reduce(profile: HardwareProfile, ranks: int, *, ideal: bool = False) -> CollectiveCurve | None:
    """Of so many bytes on every device. Ideal: rings at the links' rates, no latency. None: no link joins so many."""
    node, network = node_devices(profile), profile.network_bytes_per_s
    if ideal:
        local = _ideal_all_reduce(profile, ranks) if ranks <= node or network is None else None
    else:
        local = _node_all_reduce(profile, ranks) if ranks <= node else None
    if local is not None or ranks <= node or network is None:
        return local
    inside = all_reduce(profile, node, ideal=ideal) if node > 1 else None
    return _hierarchical(inside, node, ceil(ranks / node), network, ideal=ideal)


def _ideal_all_reduce(profile: HardwareProfile, ranks: int) -> CollectiveCurve | None:
    link = profile.scale_up
    joined = link is not None and ranks <= link.devices
    bytes_per_s = link.bytes_per_s if joined and link is not None else profile.pcie_bytes_per_s
    if bytes_per_s is None:
        return None
    return CollectiveCurve(latency_s=0.0, bytes_per_s=bytes_per_s * ranks / (2 * (ranks - 1)))


def _node_all_reduce(profile: HardwareProfile, ranks: int) -> CollectiveCurve | None:
    """Measured, or that of the next larger group; beyond the largest measured one, its bus rate on the same link."""
    curves = profile.efficiency.all_reduce
    known = [devices for devices in curves if devices >= ranks]
    if known or not curves:
        return curves[min(known)] if known else None
    largest = max(curves)
    curve = curves[largest]
    return CollectiveCurve(
        latency_s=curve.latency_s * log2(ranks) / log2(largest),
        bytes_per_s=bus_bytes_per_s(curve, largest) * ranks / (2 * (ranks - 1)),
    )


def _hierarchical(
    inside: CollectiveCurve | None, node: int, nodes: int, network_bytes_per_s: float, *, ideal: bool
) -> CollectiveCurve:
    """All-reduce of ``nodes`` full nodes: reduce-scatter inside, a ring of each device's part between, all-gather."""
    share, latency_s = (1.0, 0.0) if ideal else (NETWORK_SHARE, NETWORK_LATENCY_S)
    between_s_per_byte = 2 * (nodes - 1) / nodes / node / (share * network_bytes_per_s)
    inside_s_per_byte = 0.0 if inside is None else 1 / inside.bytes_per_s
    return CollectiveCurve(
        latency_s=(inside.latency_s if inside else 0.0) + 2 * ceil(log2(nodes)) * latency_s,
        bytes_per_s=1 / (inside_s_per_byte + between_s_per_byte),
    )


def bus_bytes_per_s(curve: CollectiveCurve, ranks: int) -> float:
    """What each device sends per second during an all-reduce: every byte crosses 2 (n - 1) / n times."""
    return curve.bytes_per_s * 2 * (ranks - 1) / ranks


def all_gather(reduce: CollectiveCurve, ranks: int, *, ideal: bool = False) -> CollectiveCurve:
    """Of so many bytes gathered on every device: half of an all-reduce's; a reduce-scatter takes the same."""
    share = 1.0 if ideal else NCCL_SHARE
    return CollectiveCurve(latency_s=_nccl_latency_s(reduce, ranks), bytes_per_s=share * 2 * reduce.bytes_per_s)


def all_to_all(
    profile: HardwareProfile, reduce: CollectiveCurve, ranks: int, *, ideal: bool = False
) -> CollectiveCurve:
    """Of so many bytes that each device sends to others, spread evenly: at the bus rate of an all-reduce inside a node.

    Of what goes to other nodes, each device's NIC takes its part; both go at once, and the slower sets the time.
    """
    node, network = node_devices(profile), profile.network_bytes_per_s
    inside_share = 1.0 if ideal else NCCL_SHARE
    if ranks <= node or network is None:
        bytes_per_s = inside_share * bus_bytes_per_s(reduce, ranks)
        return CollectiveCurve(latency_s=_nccl_latency_s(reduce, ranks), bytes_per_s=bytes_per_s)
    share, latency_s = (1.0, 0.0) if ideal else (NETWORK_SHARE, NETWORK_LATENCY_S)
    leaving = (ranks - node) / (ranks - 1)
    bytes_per_s = share * network / leaving
    inside = all_reduce(profile, node, ideal=ideal) if node > 1 else None
    if inside is not None:
        bytes_per_s = min(bytes_per_s, inside_share * bus_bytes_per_s(inside, node) / (1 - leaving))
        latency_s += _nccl_latency_s(inside, node)
    return CollectiveCurve(latency_s=latency_s, bytes_per_s=bytes_per_s)


def _nccl_latency_s(reduce: CollectiveCurve, ranks: int) -> float:
    """Of a small call: 1.5 times that of the custom all-reduce over up to 4 devices, twice from 8 on."""
    return reduce.latency_s * min(2.0, max(1.5, (1 + log2(ranks)) / 2))


def send(profile: HardwareProfile, sender: int, *, group: int, ideal: bool = False) -> CollectiveCurve | None:
    """Point to point from a device to its like in the next group of ``group`` devices, devices counted from 0.

    Inside the scale-up link as an all-reduce of two, which sends each byte once; else over PCIe inside a node, or over
    the network. None: nothing joins them.
    """
    receiver, link, network = sender + group, profile.scale_up, profile.network_bytes_per_s
    if link is not None and sender // link.devices == receiver // link.devices:
        if ideal:
            return CollectiveCurve(latency_s=0.0, bytes_per_s=link.pair_bytes_per_s)
        return all_reduce(profile, 2)
    node, pcie = node_devices(profile), profile.pcie_bytes_per_s
    if sender // node == receiver // node or network is None:
        if sender // node != receiver // node or (pcie is None and not profile.efficiency.all_reduce):
            return None
        if pcie is None or (link is None and not ideal):
            return all_reduce(profile, 2, ideal=ideal)
        return CollectiveCurve(latency_s=0.0, bytes_per_s=pcie) if ideal else pcie_all_reduce(pcie, 2)
    share, latency_s = (1.0, 0.0) if ideal else (NETWORK_SHARE, NETWORK_LATENCY_S)
    return CollectiveCurve(latency_s=latency_s, bytes_per_s=share * network)
