"""The profiles that ship: all load, every figure is the checked one, every figure has a source."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sim.hardware import HardwareProfile, hardware_summary, load_profile, profile_names
from sim.resources import folder

PEAKS = {
    "fp32": "peak_fp32_flop_per_s",
    "tf32": "peak_tf32_flop_per_s",
    "bf16": "peak_bf16_flop_per_s",
    "fp16": "peak_fp16_flop_per_s",
    "fp8": "peak_fp8_flop_per_s",
    "int8": "peak_int8_op_per_s",
    "fp4": "peak_fp4_flop_per_s",
}
OWN_CURVES = {
    "a100-sxm-80gb",
    "b200-sxm",
    "h100-sxm",
    "h200-sxm",
    "l40s",
    "rtx-4090",
    "rtx-pro-6000-blackwell-server",
}


@pytest.fixture(scope="session")
def table(shared: Path) -> dict[str, dict[str, str]]:
    with (shared / "reference" / "hardware.csv").open(newline="") as file:
        return {row["device"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="session")
def profiles() -> dict[str, HardwareProfile]:
    return {name: load_profile(name) for name in profile_names()}


def number(cell: str, scale: float = 1) -> float | None:
    return float(cell) / scale if cell else None


def test_fifty_devices_ship(profiles: dict[str, HardwareProfile]) -> None:
    assert len(profiles) == 50
    assert all(profile.name == name for name, profile in profiles.items())


def test_names_are_the_tables(table: dict[str, dict[str, str]]) -> None:
    assert profile_names() == sorted(table)


@pytest.mark.parametrize("name", profile_names())
def test_every_figure_is_the_tables(name: str, table: dict[str, dict[str, str]]) -> None:
    profile, row = load_profile(name), table[name]
    assert profile.product == row["product"]
    assert profile.vendor == row["vendor"]
    assert profile.architecture == row["architecture"]
    assert profile.peak_flops_per_s == {dtype: float(row[key]) for dtype, key in PEAKS.items() if row[key]}
    assert profile.hbm_bytes_per_s == float(row["mem_bandwidth_byte_per_s"])
    totals = [row["mem_runtime_total_byte"], row["mem_driver_total_byte"], row["mem_marketed_byte"]]
    assert profile.memory_bytes == int(next(total for total in totals if total))
    assert profile.l2_bytes == number(row["l2_byte"])
    assert profile.pcie_bytes_per_s == number(row["pcie_bw_unidir_byte_per_s"])
    assert profile.network_bytes_per_s == number(row["nic_per_device_bit_per_s"], 8)
    assert profile.power_w == number(row["tdp_w"])
    price = profile.price.usd_per_hour if profile.price else None
    assert price == number(row["price_usd_per_device_hour"])
    link = profile.scale_up
    if not row["scaleup_bw_unidir_byte_per_s"]:
        assert link is None
        return
    assert link is not None
    assert link.bytes_per_s == float(row["scaleup_bw_unidir_byte_per_s"])
    assert link.pair_bytes_per_s == float(row["scaleup_pair_unidir_byte_per_s"])
    assert link.devices == int(row["scaleup_domain_devices"])


@pytest.mark.parametrize("name", profile_names())
def test_every_figure_has_a_source(name: str) -> None:
    profile = load_profile(name)
    figures = ["hbm_bytes_per_s", "memory_bytes", "l2_bytes", "scale_up", "pcie_bytes_per_s", "network_bytes_per_s"]
    given = {key for key in [*figures, "power_w"] if getattr(profile, key) is not None} | {"peak_flops_per_s"}
    assert set(profile.sources) == given
    assert all(profile.sources.values())
    assert profile.price is None or profile.price.source


@pytest.mark.parametrize("name", profile_names())
def test_memory_that_no_process_reported_says_so(name: str, table: dict[str, dict[str, str]]) -> None:
    source = load_profile(name).sources["memory_bytes"]
    if not table[name]["mem_runtime_total_byte"]:
        assert "no runtime" in source or "neither runtime" in source


def test_measured_curves_are_marked(profiles: dict[str, HardwareProfile]) -> None:
    measured = {name for name, profile in profiles.items() if profile.efficiency.calibrated}
    assert measured == OWN_CURVES
    for name, profile in profiles.items():
        assert profile.efficiency.date
        assert bool(profile.efficiency.error) == (name in measured)
        assert ("borrowed from" in profile.efficiency.source) == (name not in measured)
        assert not profile.host.calibrated


def test_every_device_has_16_bit_curves(profiles: dict[str, HardwareProfile]) -> None:
    """A dtype without a row takes bf16's, so that row must be there; attention needs at least one head size."""
    for profile in profiles.values():
        assert "bf16" in profile.efficiency.gemm
        assert "bf16" in profile.efficiency.moe
        assert profile.efficiency.decode_attention
        assert profile.efficiency.prefill_attention


def test_every_linked_device_has_all_reduce_curves(profiles: dict[str, HardwareProfile]) -> None:
    for profile in profiles.values():
        linked = profile.scale_up is not None or profile.pcie_bytes_per_s is not None
        assert set(profile.efficiency.all_reduce) == ({2, 4, 8} if linked else set())


def test_summary_of_the_h100() -> None:
    summary = hardware_summary(load_profile("h100-sxm"))
    assert summary["name"] == "h100-sxm"
    assert summary["memory_bytes"] == 85_029_027_840
    assert summary["hbm_bytes_per_s"] == 3.352e12
    assert round(summary["ridge_flops_per_byte"]["bf16"]) == 295
    assert summary["calibration"]["calibrated"] is True
    assert summary["calibration"]["date"] == "2026-11-30"
    assert summary["price"]["usd_per_hour"] == 2.95
    assert summary["links"]["scale_up"]["devices"] == 8


@pytest.mark.parametrize("name", sorted(path.stem for path in folder("hardware_profiles").glob("*.yaml")))
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_one_stream_decodes_at_the_speed_of_memory(name: str, model: str) -> None:
    """Tile padding must not make a single token compute-bound: what bounds it is bytes, launches and the host."""
    from sim.cost import RooflineCost
    from sim.models import load_model
    from sim.models.memory import windows
    from sim.work import StepWork

    spec = load_model(model)
    cost = RooflineCost(spec, load_profile(name))
    inside = tuple(min(500, window) for window in windows(spec))
    step = cost.step_time(StepWork((), 1, 500, inside, 1))
    assert step.compute_s < 0.45 * step.device_s
