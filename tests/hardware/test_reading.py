"""Broken profiles: every problem at once, with line, key and cure. And borrowed curves."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import Problem, ScenarioError
from sim.hardware import load_profile, save_profile


@pytest.fixture
def text(tmp_path: Path) -> str:
    """The H100's profile, written out."""
    save_profile(load_profile("h100-sxm"), tmp_path / "whole.yaml")
    return (tmp_path / "whole.yaml").read_text()


def problems_of(folder: Path, text: str) -> dict[str, Problem]:
    path = folder / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_profile("broken.yaml", folder)
    return {problem.path: problem for problem in caught.value.problems}


def test_all_problems_at_once_with_lines(tmp_path: Path, text: str) -> None:
    broken = (
        text.replace("hbm_bytes_per_s: 3.352e+12", "hbm_bytes_per_s: -3.352e+12")
        .replace("power_w: 700.0", "power: 700.0")
        .replace("memory: 0.87", "memory: 1.87")
        .replace("memory_bytes: 85029027840", "memory_bytes: 80 GB")
    )
    found = problems_of(tmp_path, broken)
    assert set(found) == {"hbm_bytes_per_s", "power", "power_w", "efficiency.gemm.bf16.memory", "memory_bytes"}
    lines = broken.splitlines()
    for key, starts in {
        "hbm_bytes_per_s": "hbm_",
        "power": "power:",
        "efficiency.gemm.bf16.memory": "    bf16",
    }.items():
        line = found[key].line
        assert line is not None
        assert lines[line - 1].startswith(starts)
    assert "power_w" in found["power"].cure
    assert "1.87" in found["efficiency.gemm.bf16.memory"].problem
    assert all(problem.file.endswith("broken.yaml") and problem.cure for problem in found.values())


def test_a_sparse_fp8_peak_is_refused(tmp_path: Path, text: str) -> None:
    found = problems_of(tmp_path, text.replace("fp8: 1.9789e+15", "fp8: 3.958e+15"))
    assert "a sparse figure" in found["peak_flops_per_s.fp8"].problem
    assert "1.979e+15" in found["peak_flops_per_s.fp8"].cure


def test_a_compute_share_may_only_exceed_one_by_the_boost_clock(tmp_path: Path, text: str) -> None:
    (tmp_path / "boost.yaml").write_text(text.replace("compute: 0.82", "compute: 1.08"))
    assert load_profile("boost.yaml", tmp_path).efficiency.gemm["bf16"].compute == 1.08
    assert "efficiency.gemm.bf16.compute" in problems_of(tmp_path, text.replace("compute: 0.82", "compute: 1.2"))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("fp8: 1.9789e+15", "fp9: 1.9789e+15", "peak_flops_per_s.fp9"),
        ("bf16: 989.4e+12, fp16: 989.4e+12, ", "", "peak_flops_per_s"),
        ("pair_bytes_per_s: 450.0e+9", "pair_bytes_per_s: 900.0e+9", "scale_up.pair_bytes_per_s"),
        ("devices: 8", "devices: 0", "scale_up.devices"),
        ("launch_s: 3.7e-6", "launch_s: -1", "efficiency.gemm.bf16.launch_s"),
        ("launch_s: 3.7e-6", "launch_s: .nan", "efficiency.gemm.bf16.launch_s"),
        ("launch_s: 3.7e-6, ", "", "efficiency.gemm.bf16.launch_s"),
        ("launch_s: 3.7e-6", "launch_us: 3.7", "efficiency.gemm.bf16.launch_us"),
        ("slowdown: 1.0", "slowdown: '1.0'", "host.slowdown"),
        ("calibrated: true", "calibrated: yes", "efficiency.calibrated"),
        ("hbm_bytes_per_s: 3.352e+12", "hbm_bytes_per_s: .inf", "hbm_bytes_per_s"),
        ("name: h100-sxm\n", "", "name"),
    ],
)
def test_refused(tmp_path: Path, text: str, old: str, new: str, key: str) -> None:
    assert old in text
    assert key in problems_of(tmp_path, text.replace(old, new, 1))


def test_a_key_twice_is_an_error(tmp_path: Path, text: str) -> None:
    found = problems_of(tmp_path, text + "power_w: 350.0\n")
    assert "already on line" in found["power_w"].problem


@pytest.mark.parametrize(
    "content", ["", "- a\n- b\n", "just text\n", "a: [1\n", "a: !!python/object:os.system {}\n", "a: &b [*b]\n"]
)
def test_what_is_no_profile_is_refused(tmp_path: Path, content: str) -> None:
    assert problems_of(tmp_path, content)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_profile("broken.yaml", tmp_path)


def test_numbers_follow_yaml_1_2(tmp_path: Path, text: str) -> None:
    for spelling in ("3.352e12", "3352e9", "3352000000000", "+3.352E+12"):
        (tmp_path / "spelling.yaml").write_text(text.replace("3.352e+12", spelling))
        assert load_profile("spelling.yaml", tmp_path).hbm_bytes_per_s == 3.352e12


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_profile("h100_sxm")
    assert "h100-sxm" in caught.value.problems[0].cure


BORROWS = "{from: h100-sxm, why: same chip}"


def borrower(text: str, efficiency: str) -> str:
    head, tail = text.index("efficiency:"), text.index("host:")
    return f"{text[:head]}efficiency: {efficiency}\n{text[tail:]}"


def test_borrowed_curves_are_the_siblings_and_say_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(borrower(text, BORROWS))
    mine, sibling = load_profile("mine.yaml", tmp_path).efficiency, load_profile("h100-sxm").efficiency
    assert mine.gemm == sibling.gemm
    assert mine.all_reduce == sibling.all_reduce
    assert not mine.calibrated
    assert mine.source.startswith("borrowed from h100-sxm (same chip)")
    assert mine.error == {}


def test_own_rows_replace_borrowed_ones(tmp_path: Path, text: str) -> None:
    row = "{from: h100-sxm, why: w, gemm: {bf16: {launch_s: 1e-6, memory: 0.5, compute: 0.5}}, mixed_step_decode: 1.5}"
    (tmp_path / "mine.yaml").write_text(borrower(text, row))
    mine = load_profile("mine.yaml", tmp_path).efficiency
    assert mine.gemm["bf16"].memory == 0.5
    assert mine.gemm["fp8"] == load_profile("h100-sxm").efficiency.gemm["fp8"]
    assert mine.mixed_step_decode == 1.5


@pytest.mark.parametrize(
    ("efficiency", "key"),
    [
        ("{from: h100-sxn, why: w}", "efficiency.from"),
        ("{from: h100-sxm}", "efficiency.why"),
        ("{from: h100-sxm, why: w, gem: {}}", "efficiency.gem"),
        ("{from: h100-sxm, why: w, elementwise_memory: 2}", "efficiency.elementwise_memory"),
        ("{from: ./broken.yaml, why: w}", "efficiency.from"),
    ],
)
def test_refused_borrowing(tmp_path: Path, text: str, efficiency: str, key: str) -> None:
    broken = borrower(text, efficiency).replace("power_w: 700.0", "power_w: 0")
    found = problems_of(tmp_path, broken)
    assert set(found) == {key, "power_w"}


def test_a_circle_of_borrowing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(borrower(text, "{from: ./b.yaml, why: w}"))
    (tmp_path / "b.yaml").write_text(borrower(text, "{from: ./a.yaml, why: w}"))
    with pytest.raises(ScenarioError, match="in turn"):
        load_profile("a.yaml", tmp_path)


def test_a_bad_link_of_a_borrower_is_one_problem(tmp_path: Path, text: str) -> None:
    found = problems_of(tmp_path, borrower(text, BORROWS).replace("devices: 8", "devices: -8"))
    assert set(found) == {"scale_up.devices"}
