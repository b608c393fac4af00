"""What-ifs keep the guards and say what they changed."""

from __future__ import annotations

import pytest

from sim.errors import ScenarioError
from sim.hardware import load_profile, with_overrides

H100 = load_profile("h100-sxm")


def test_textbook_h100() -> None:
    """The figures of back-of-envelope articles: 989 TFLOP/s, 3.35 TB/s."""
    textbook = with_overrides(H100, peak_flops_per_s={"bf16": 989e12}, hbm_bytes_per_s=3.35e12, memory_bytes=80 * 10**9)
    assert textbook.ridge_flops_per_byte("bf16") == pytest.approx(989e12 / 3.35e12)
    assert textbook.memory_bytes == 80_000_000_000
    assert textbook.peak_flops_per_s["fp8"] == H100.peak_flops_per_s["fp8"]
    assert textbook.efficiency == H100.efficiency
    assert "what-if: hbm_bytes_per_s 3.35e+12 instead of 3.352e+12" in textbook.notes
    assert textbook.sources["hbm_bytes_per_s"] == "what-if"


def test_nothing_given_changes_nothing() -> None:
    assert with_overrides(H100) == H100
    assert with_overrides(H100, peak_flops_per_s={}) == H100


def test_host_slowdown() -> None:
    assert with_overrides(H100, host_slowdown=2.5).host.slowdown == 2.5


def test_slower_bf16_alone_is_a_fair_question() -> None:
    assert with_overrides(H100, peak_flops_per_s={"bf16": 400e12}).peak_flops_per_s["bf16"] == 400e12


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"peak_flops_per_s": {"fp8": 3958e12}}, "peak_flops_per_s.fp8"),
        ({"peak_flops_per_s": {"fp9": 1e15}}, "peak_flops_per_s.fp9"),
        ({"peak_flops_per_s": {"bf16": -1.0}}, "peak_flops_per_s.bf16"),
        ({"hbm_bytes_per_s": 0.0}, "hbm_bytes_per_s"),
        ({"hbm_bytes_per_s": float("inf")}, "hbm_bytes_per_s"),
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"host_slowdown": 0.0}, "host_slowdown"),
    ],
)
def test_refused(change: dict[str, object], key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        with_overrides(H100, **change)  # type: ignore[arg-type]
    assert [problem.path for problem in caught.value.problems] == [key]
