"""Lessons by hand: one pass of eight billion parameters, and the linear model's arithmetic."""

from __future__ import annotations

import pytest

from sim.cost import LinearCost, RooflineCost
from sim.hardware import load_profile, with_overrides
from sim.models import abstract_model
from sim.work import PrefillChunk, StepWork

LINEAR = LinearCost(prefill_s_per_token=20e-6, step_s=5e-3, step_s_per_sequence=50e-6)


@pytest.fixture(scope="module")
def ideal() -> RooflineCost:
    device = with_overrides(load_profile("h100-sxm"), peak_flops_per_s={"fp16": 989e12}, hbm_bytes_per_s=3.35e12)
    return RooflineCost(abstract_model(8e9, "fp16"), device, ideal=True)


@pytest.mark.parametrize(
    ("tokens", "milliseconds", "bound"),
    [(1, 4.78, "memory"), (32, 4.78, "memory"), (512, 8.28, "compute"), (4096, 66.26, "compute")],
)
@pytest.mark.parametrize("decodes", [True, False], ids=["decode", "prefill"])
def test_one_pass_of_eight_billion_parameters(
    ideal: RooflineCost, tokens: int, milliseconds: float, bound: str, decodes: bool
) -> None:
    """16 GB over 3.35 TB/s, or 16 GFLOP a token over 989 TFLOP/s: whichever is longer, and nothing else."""
    work = StepWork((), tokens, tokens, (), tokens) if decodes else StepWork((PrefillChunk(tokens, 0),), 0, 0, (), 1)
    time = ideal.step_time(work)
    assert round(time.device_s * 1e3, 2) == milliseconds
    assert time.bound == bound
    assert (time.host_s, time.launch_s, time.communication_s) == (0.0, 0.0, 0.0)


def test_the_ridge_is_where_both_meet(ideal: RooflineCost) -> None:
    """989e12 / 3.35e12 = 295 FLOP per byte, and two FLOPs per two-byte weight and token: 295 tokens."""
    bounds = [ideal.step_time(StepWork((), tokens, 0, (), tokens)).bound for tokens in (295, 296)]
    assert bounds == ["memory", "compute"]


@pytest.mark.parametrize(("prompt", "milliseconds"), [(2_000, 40), (20_000, 400), (200, 4)])
def test_linear_ttft(prompt: int, milliseconds: float) -> None:
    time = LINEAR.step_time(StepWork((PrefillChunk(prompt, 0),), 0, 0, (), 1))
    assert time.device_s * 1e3 == pytest.approx(milliseconds)
    assert time.bound == "compute"


@pytest.mark.parametrize(("batch", "milliseconds", "tokens_per_s"), [(1, 5.05, 198), (32, 6.60, 4_848)])
def test_linear_tpot(batch: int, milliseconds: float, tokens_per_s: int) -> None:
    time = LINEAR.step_time(StepWork((), batch, 1_000 * batch, (), batch))
    assert time.device_s * 1e3 == pytest.approx(milliseconds)
    assert round(batch / time.device_s) == tokens_per_s
    assert time.bound == "memory"


@pytest.mark.parametrize(
    ("prompt", "output", "batch", "total_s"),
    [
        (2_000, 200, 1, 1.04),
        (2_000, 200, 32, 1.35),
        (20_000, 100, 1, 0.90),
        (20_000, 100, 32, 1.05),
        (200, 1_000, 1, 5.05),
        (200, 1_000, 32, 6.60),
    ],
)
def test_linear_totals(prompt: int, output: int, batch: int, total_s: float) -> None:
    """The first token comes with the prompt, the others one step each."""
    assert round(LINEAR.prefill_s(prompt) + (output - 1) * LINEAR.decode_s(batch), 2) == total_s


def test_linear_parts_add_up_in_a_mixed_step() -> None:
    """Each of the five terms, counted once, and a term of a phase that is absent not at all."""
    cost = LinearCost(
        prefill_step_s=1.0,
        prefill_s_per_token=0.1,
        step_s=10.0,
        step_s_per_sequence=0.01,
        step_s_per_context_token=0.0001,
    )
    chunks = (PrefillChunk(3, 0), PrefillChunk(4, 9))
    mixed = cost.step_time(StepWork(chunks, 5, 70, (), 6))
    assert mixed.compute_s == pytest.approx(1.0 + 7 * 0.1)
    assert mixed.memory_s == pytest.approx(10.0 + 5 * 0.01 + 70 * 0.0001)
    assert cost.step_time(StepWork(chunks, 0, 0)).memory_s == 0.0
    assert cost.step_time(StepWork((), 5, 70)).compute_s == 0.0
    assert mixed.host_s == mixed.communication_s == mixed.launch_s == 0.0
