"""What the plan's runner leaves out, and how it says so."""

from __future__ import annotations

from collections import Counter

from calibrate.bench import Budget, HostTimer
from calibrate.kernels import Gemm
from calibrate.session import run_plan
from calibrate.workbench import TooLargeError


class Machine:
    """A bench and a clock: products run at 1 GFLOP/s."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def call(self, kernel):
        if kernel.depth > 5000:
            raise TooLargeError("too large")
        if kernel.dtype == "fp8":
            return self.missing

        def run(turn: int) -> None:
            self.now_s += kernel.flops / 1e9

        return run

    def missing(self, turn: int) -> None:
        raise RuntimeError("no kernel for fp8\nlong trace")


def product(tokens, dtype="bf16", depth=500):
    return Gemm(dtype=dtype, tokens=tokens, depth=depth, columns=1000)


def run(plan, total_s=20.0):
    machine = Machine()
    timer = HostTimer(lambda: None, machine.clock)
    budget = Budget(total_s, len(plan), machine.clock)
    return run_plan(machine, timer, plan, budget, lambda kernel, position: None), machine


def test_every_kernel_that_fits_is_measured():
    session, _ = run([product(1), product(2)])
    assert [round(sample.seconds, 9) for sample in session.samples] == [1e-3, 2e-3]
    assert session.skip_lines() == []


def test_a_kernel_far_beyond_its_share_is_never_started():
    session, machine = run([*(product(1) for _ in range(10)), product(100_000)])
    assert len(session.samples) == 10
    assert session.skip_lines() == ["1 gemm bf16 kernel: too long for the time there is"]
    assert machine.now_s < 20


def test_memory_and_missing_kernels_are_told_apart_and_counted():
    plan = [product(1), product(1, depth=6000), product(2, depth=6000), product(1, "fp8")]
    session, _ = run(plan)
    assert session.skip_lines() == [
        "2 gemm bf16 kernels: operands larger than the memory set aside (at most a quarter of what is free)",
        "1 gemm fp8 kernel: torch cannot run it here (no kernel for fp8)",
    ]


def test_when_the_time_is_spent_every_curve_still_gets_its_first_samples():
    """The last in the plan must not go without, and what has enough stops."""
    plan = [*(product(1 + i) for i in range(15)), *(product(1 + i, "fp16") for i in range(15))]
    session, _ = run(plan, total_s=0.0)
    assert Counter(sample.kernel.dtype for sample in session.samples) == {"bf16": 10, "fp16": 10}
    assert "5 gemm fp16 kernels: the time is spent" in session.skip_lines()
