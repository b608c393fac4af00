"""All-reduce on links nobody has measured."""

from __future__ import annotations

import pytest

from sim.hardware import Link, load_profile
from sim.hardware.collectives import pcie_all_reduce, reach_bytes_per_s, scaled_all_reduce

SWITCH = Link(name="switch", bytes_per_s=450e9, pair_bytes_per_s=450e9, devices=8)
MESH = Link(name="mesh", bytes_per_s=448e9, pair_bytes_per_s=64e9, devices=8)


def test_a_switch_reaches_everyone_at_full_rate_a_mesh_link_by_link() -> None:
    assert [reach_bytes_per_s(SWITCH, devices) for devices in (2, 4, 8)] == [450e9, 450e9, 450e9]
    assert [reach_bytes_per_s(MESH, devices) for devices in (2, 4, 8)] == [64e9, 192e9, 448e9]


def test_half_the_link_is_half_the_bandwidth_and_the_same_latency() -> None:
    measured = load_profile("h100-sxm").efficiency.all_reduce
    half = Link(name="half", bytes_per_s=225e9, pair_bytes_per_s=225e9, devices=8)
    scaled = scaled_all_reduce(measured, SWITCH, half, None)
    for devices, curve in measured.items():
        assert scaled[devices].latency_s == curve.latency_s
        assert scaled[devices].bytes_per_s == pytest.approx(curve.bytes_per_s / 2)


def test_bridged_pairs_are_nvlink_between_two_and_pcie_beyond() -> None:
    """NVLink bridges of PCIe cards join two; beyond, NCCL takes about 150 us a call."""
    card, board = load_profile("h100-pcie"), load_profile("h100-sxm")
    curves = card.efficiency.all_reduce
    assert curves[2].bytes_per_s == pytest.approx(board.efficiency.all_reduce[2].bytes_per_s * 300 / 450)
    assert curves[4] == pcie_all_reduce(64e9, 4)
    assert curves[4].latency_s == 150e-6


def test_pcie_ring_crosses_the_link_twice_nearly() -> None:
    assert pcie_all_reduce(32e9, 2).bytes_per_s == pytest.approx(19.2e9)
    assert pcie_all_reduce(32e9, 8).bytes_per_s == pytest.approx(19.2e9 / 1.75)


def test_the_pcie_estimate_is_near_what_was_measured_between_two_l40s() -> None:
    measured = load_profile("l40s").efficiency.all_reduce[2].bytes_per_s
    assert pcie_all_reduce(32e9, 2).bytes_per_s == pytest.approx(measured, rel=0.02)


def test_without_any_link_there_is_no_curve() -> None:
    assert scaled_all_reduce(load_profile("h100-sxm").efficiency.all_reduce, SWITCH, None, None) == {}
