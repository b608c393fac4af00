"""Collectives on links nobody has measured."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from sim.hardware import Link, collectives, load_profile
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


def test_all_reduce_over_two_nodes() -> None:
    """Ideal: inside 450 GB/s x 8 / 14 = 257 GB/s; between, each NIC carries an eighth once: 8 x 50 = 400 GB/s.

    As estimated, two messages of 15 us come after the measured 5.5 us, and NICs reach 0.8 of their rate.
    """
    profile = load_profile("h100-sxm")
    ideal, real = collectives.all_reduce(profile, 16, ideal=True), collectives.all_reduce(profile, 16)
    assert ideal is not None
    assert real is not None
    assert 1 / ideal.bytes_per_s == pytest.approx(14 / 8 / 450e9 + 1 / 400e9)
    assert real.latency_s == pytest.approx(35.5e-6)
    assert 1 / real.bytes_per_s == pytest.approx(1 / 204e9 + 1 / 320e9)
    assert collectives.all_reduce(load_profile("l40s"), 16) is None


def test_larger_groups_of_one_link_keep_its_rate() -> None:
    """GB200, 72 devices to a rack: 8 reduce at 323 GB/s, which sends 323 x 14/8; 64 send each byte 126/64 times.

    Latency grows with the logarithm: 8.6 us x 6 / 3.
    """
    curve = collectives.all_reduce(load_profile("gb200"), 64)
    assert curve is not None
    assert curve.bytes_per_s == pytest.approx(323e9 * (14 / 8) / (126 / 64))
    assert curve.latency_s == pytest.approx(17.2e-6)


def test_all_to_all_over_two_nodes_is_bound_by_the_nics() -> None:
    """8 of a device's 15 peers are elsewhere: of each byte 8/15 leave at 50 GB/s."""
    profile = load_profile("h100-sxm")
    reduce = collectives.all_reduce(profile, 16, ideal=True)
    assert reduce is not None
    curve = collectives.all_to_all(profile, reduce, 16, ideal=True)
    assert (curve.latency_s, curve.bytes_per_s) == pytest.approx((0.0, 50e9 * 15 / 8))


@pytest.mark.parametrize(
    ("device", "sender", "group", "latency_s", "bytes_per_s"),
    [
        ("h100-sxm", 0, 1, 4.3e-6, 262e9),
        ("h100-sxm", 7, 1, 15e-6, 40e9),
        ("h100-sxm", 0, 8, 15e-6, 40e9),
        ("a100-pcie-80gb", 0, 1, 5e-6, 177e9),
        ("a100-pcie-80gb", 1, 1, 10e-6, 0.6 * 32e9),
        ("l40s", 0, 4, 5.3e-6, 19.1e9),
    ],
)
def test_sends(device: str, sender: int, group: int, latency_s: float, bytes_per_s: float) -> None:
    """Inside the link, from a bridged pair to the next, and from node to node."""
    curve = collectives.send(load_profile(device), sender, group=group)
    assert curve is not None
    assert (curve.latency_s, curve.bytes_per_s) == pytest.approx((latency_s, bytes_per_s))


@pytest.mark.parametrize(("kind", "most"), [("all_gather", 0.2), ("reduce_scatter", 0.2), ("alltoall", 0.25)])
def test_against_nccl(shared: Path, kind: str, most: float) -> None:
    """What is derived from custom all-reduces, against NCCL's own on H100 and H200, 2 to 8 devices."""
    errors = []
    with (shared / "data/kernels/aic/nccl.csv").open() as file:
        for row in csv.DictReader(file):
            if row["op_name"] != kind or row["nccl_dtype"] != "half" or row["system"] not in ("h100_sxm", "h200_sxm"):
                continue
            ranks, size = int(row["num_gpus"]), 2 * int(row["message_size"])
            profile = load_profile(row["system"].replace("_", "-"))
            reduce = collectives.all_reduce(profile, ranks)
            assert reduce is not None
            if kind == "alltoall":
                curve, size = collectives.all_to_all(profile, reduce, ranks), size * (ranks - 1) // ranks
            else:
                curve = collectives.all_gather(reduce, ranks)
            errors.append(abs((curve.latency_s + size / curve.bytes_per_s) / (float(row["latency_ms"]) / 1e3) - 1))
    assert len(errors) > 50
    assert median(errors) < most
