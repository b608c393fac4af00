"""A saved profile reads back as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import GemmCurve, load_profile, profile_names, save_profile
from sim.hardware.writing import number_text


@pytest.mark.parametrize("name", profile_names())
def test_round_trip(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    save_profile(profile, tmp_path / "again.yaml")
    assert load_profile("again.yaml", tmp_path) == profile


def test_round_trip_of_odd_figures(tmp_path: Path) -> None:
    profile = load_profile("rtx-4090")
    curve = GemmCurve(launch_s=1 / 3e6, memory=0.1 + 0.2, compute=2 / 3, softness=math.inf)
    efficiency = replace(profile.efficiency, gemm={"bf16": curve}, all_reduce={}, error={"gemm.bf16": 1e-9})
    odd = replace(profile, efficiency=efficiency, power_w=None, scale_up=None, notes=("a: b # c", "yes", "1e3", ""))
    save_profile(odd, tmp_path / "odd.yaml")
    assert load_profile("odd.yaml", tmp_path) == odd


def test_saving_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    save_profile(load_profile("t4"), tmp_path / "new" / "t4.yaml")
    save_profile(load_profile("t4"), tmp_path / "new" / "t4.yaml")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["t4.yaml"]


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t4.yaml"
    save_profile(load_profile("t4"), path)
    before = path.read_bytes()
    broken = replace(load_profile("t4"), notes=(object(),))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="represent"):
        save_profile(broken, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t4.yaml"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_every_digit(value: float) -> None:
    text = number_text(value)
    assert float(text) == value
    assert "." in text or "e" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.352e12, "3.352e+12"), (989.4e12, "989.4e+12"), (3.7e-6, "3.7e-6"), (0.87, "0.87"), (450e9, "450.0e+9")],
)
def test_engineering_notation(value: float, text: str) -> None:
    assert number_text(value) == text
