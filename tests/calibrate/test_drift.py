"""A drifting host is taken out of every sample; the check by whole forward passes."""

from __future__ import annotations

import pytest

from calibrate.bench import Budget, HostTimer
from calibrate.drift import steady
from calibrate.kernels import Gemm
from calibrate.passes import FULL, QUICK, Decoder, Pass, check_passes, small_decoder
from calibrate.session import run_plan
from sim.hardware import load_profile
from sim.models.memory import weight_bytes_per_gpu
from sim.parallel import Parallelism


class Machine:
    """Products run at 1 GFLOP/s, and at half of it after ``slows_at_s``; the reference is one of a million FLOPs."""

    def __init__(self, slows_at_s: float) -> None:
        self.now_s = 0.0
        self.slows_at_s = slows_at_s

    def clock(self) -> float:
        return self.now_s

    def work(self, flops: float) -> None:
        self.now_s += flops / (1e9 if self.now_s < self.slows_at_s else 0.5e9)

    def call(self, kernel):
        return lambda turn: self.work(kernel.flops)

    def seconds(self) -> float:
        start_s = self.now_s
        self.work(1e6)
        return self.now_s - start_s


def test_samples_are_those_at_the_usual_speed():
    """Equal kernels before and after the host slows to a half: all as long as at the median reference."""
    machine = Machine(5.0)
    plan = [Gemm(dtype="bf16", tokens=100, depth=500, columns=1000)] * 40
    budget = Budget(20.0, len(plan), machine.clock)
    session = run_plan(machine, HostTimer(lambda: None, machine.clock), plan, budget, lambda *_: None, machine)
    assert machine.now_s > 10
    expected_s = 0.1 * session.usual_reference_s / 1e-3
    steady_ones = [sample for sample in session.samples if sample.seconds == pytest.approx(expected_s, rel=1e-6)]
    assert len(session.samples) >= 5
    assert len(steady_ones) >= len(session.samples) - 1
    assert min(session.references_s[0]) == pytest.approx(1e-3)
    assert max(session.references_s[-1]) == pytest.approx(2e-3)


def test_without_a_reference_nothing_is_changed():
    machine = Machine(1e9)
    plan = [Gemm(dtype="bf16", tokens=100, depth=500, columns=1000)] * 3
    session = run_plan(
        machine, HostTimer(lambda: None, machine.clock), plan, Budget(1.0, 3, machine.clock), lambda *_: None
    )
    assert [sample.seconds for sample in session.samples] == pytest.approx([0.1] * 3)
    assert (session.drift, session.usual_reference_s) == (0.0, 0.0)


def test_a_time_at_the_usual_speed_by_hand():
    """The reference took 1.5 and 2.5 around it where it usually takes 1: the host was half as fast."""
    assert steady(10.0, 1.5, 2.5, 1.0) == pytest.approx(5.0)


def test_no_pass_is_of_a_shape_that_the_fits_see():
    from calibrate import kernels

    for grid, passes in ((kernels.QUICK, QUICK), (kernels.FULL, FULL)):
        prompts = {one.tokens * one.sequences for one in passes if one.prefills}
        assert not prompts & {*grid.tokens, *grid.prompts}
        decodes = {(one.sequences, one.context_tokens) for one in passes if not one.prefills}
        assert not decodes & {(s, c) for s in grid.sequences for c in grid.contexts}


def test_the_decoder_has_the_weights_that_the_cost_model_counts():
    torch = pytest.importorskip("torch")
    decoder = Decoder(_bench(), "bf16")
    tensors = [tensor for layer in decoder.layers for tensor in layer.values()]
    held = sum(tensor.numel() for tensor in (*tensors, decoder.embedding, decoder.head))
    norms = sum(tensor.numel() for tensor in tensors if tensor.dim() == 1)
    counted = weight_bytes_per_gpu(small_decoder("bf16"), Parallelism()) / 2
    assert held - norms == pytest.approx(counted, rel=1e-3)
    assert torch.isfinite(decoder.call(Pass(2, 5))(0).float()).all()


def test_passes_are_run_and_predicted():
    pytest.importorskip("torch")
    bench = _bench()
    wanted = (Pass(1, 16), Pass(2, 1, 40))
    found, left_out = check_passes(bench, bench.device.timer(), load_profile("h100-sxm"), "bf16", wanted, None, 0.0)
    assert left_out == []
    assert [(one.phase, one.sequences, one.tokens, one.context_tokens) for one in found] == [
        ("prefill", 1, 16, 0),
        ("decode", 2, 1, 40),
    ]
    for one in found:
        assert one.measured_s > 0
        assert one.error == pytest.approx(one.predicted_s / one.measured_s - 1)


def _bench():
    pytest.importorskip("torch")
    from calibrate.device import open_device
    from calibrate.workbench import Workbench

    return Workbench(open_device("cpu"), most_pool_bytes=2**28)
