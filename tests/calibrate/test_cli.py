"""The command: what it refuses before measuring, and one small run from device to file."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from calibrate import running
from calibrate.cli import app
from calibrate.device import open_device
from calibrate.kernels import Grid
from calibrate.report import print_report
from calibrate.running import Request, calibrate
from sim.errors import RidgelineError
from sim.hardware import load_profile

TINY = Grid(
    tokens=(1, 8, 32, 64, 128),
    weights=((512, 512), (1024, 512)),
    held_out_tokens=(3,),
    held_out_weights=((768, 512),),
    sequences=(1, 4, 8),
    contexts=(128, 512),
    heads=((4, 4), (8, 4)),
    head_dims=(64,),
    prompts=(32, 64, 128, 256),
    prompt_heads=(2, 4),
    elementwise_tokens=(256,),
)


def request(tmp_path, **changes):
    fields = {"device": "cpu", "out": tmp_path / "p.yaml", "quick": True, "name": None, "base": None}
    return Request(**{**fields, **changes})


def quiet():
    return Console(file=io.StringIO(), width=100)


def command(*arguments):
    code = "from calibrate.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_help_loads_no_torch():
    code = "import sys, calibrate.cli; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("flag", ["--device", "--out", "--quick", "--name", "--base"])
def test_help_names_every_flag(flag):
    assert flag in CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output


def test_a_run_on_this_cpu_ends_in_a_profile_that_loads(tmp_path):
    pytest.importorskip("torch")
    done = calibrate(request(tmp_path, grid=TINY, budget_s=6.0, name="here"), quiet())
    profile = load_profile(str(tmp_path / "p.yaml"))
    assert profile == done.profile
    assert profile.name == "here"
    assert profile.efficiency.calibrated
    assert {one.phase for one in profile.efficiency.passes} == {"prefill", "decode"}
    assert "calibrate run --device cpu --quick" in profile.efficiency.source
    assert set(profile.efficiency.decode_attention) == {64}
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]
    screen = Console(file=io.StringIO(), width=100)
    print_report(replace(done, skipped=("fp8: why",)), screen)
    printed = screen.file.getvalue()
    assert "gemm.bf16" in printed
    assert "left out: fp8: why" in printed


def test_no_such_device_is_refused(tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "p.yaml"
    result = command("run", "--device", "cdua", "--out", str(out))
    assert result.returncode == 2
    assert "did you mean cuda" in result.stderr
    assert not out.exists()


def test_a_device_torch_does_not_see_is_refused_with_those_it_does():
    torch = pytest.importorskip("torch")
    if torch.backends.mps.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(
        RidgelineError, match=r"--device mps: torch .* sees none on this machine\n  cure: use --device .*cpu"
    ):
        open_device("mps")


def test_a_missing_torch_is_an_error_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RidgelineError) as caught:
        calibrate(request(tmp_path), quiet())
    assert 'cure: pip install "ridgeline-sim[calibrate]"' in str(caught.value)


@pytest.mark.parametrize("out", [".", "file/p.yaml"])
def test_an_out_that_cannot_be_written_is_refused_before_measuring(out, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(running, "open_device", lambda kind: pytest.fail("measuring began"))
    with pytest.raises(RidgelineError, match="--out"):
        calibrate(request(tmp_path, out=tmp_path / out), quiet())


def test_an_unknown_base_is_refused_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "open_device", lambda kind: pytest.fail("measuring began"))
    with pytest.raises(RidgelineError, match="h100-sxm"):
        calibrate(request(tmp_path, base="h100-smx"), quiet())


def test_interrupted_it_says_so_and_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_measure", interrupted)
    pytest.importorskip("torch")
    result = CliRunner().invoke(app, ["run", "--device", "cpu", "--out", str(tmp_path / "p.yaml")])
    assert result.exit_code == 130
    assert "interrupted: nothing was written" in result.output
    assert list(tmp_path.iterdir()) == []
