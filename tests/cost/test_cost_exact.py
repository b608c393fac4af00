"""Tables change nothing: a step costs the same to the last bit, whatever was asked before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import Operator, RooflineCost
from sim.cost.operators import total
from sim.engine.versions.vllm import GRAPH_SIZES, HOST
from sim.hardware import load_profile
from sim.models import load_model
from sim.models.memory import windows
from sim.parallel import Parallelism
from sim.work import PrefillChunk, StepTime, StepWork

H100 = load_profile("h100-sxm")
NAMES = ["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3.2", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b"]
HEAD = ("lm head", "sampler")
ATTENTION = ("decode attention", "prefill attention", "mamba2 scan", "gated-delta-net scan")
Make = Callable[..., StepWork]


def fresh(name: str, *, ranks: int = 2, ideal: bool = False) -> RooflineCost:
    return RooflineCost(
        load_model(name), H100, parallel=Parallelism(tensor=ranks), host=HOST, ideal=ideal, graph_sizes=GRAPH_SIZES
    )


def untabulated(name: str, work: StepWork, *, ideal: bool) -> StepTime:
    """A step from its operators alone: those of the tokens, the attention and the head, and the engine's gaps."""
    operators = fresh(name, ideal=ideal).operators(work)

    def parts(chosen: Callable[[Operator], bool]) -> tuple[float, ...]:
        return total([operator for operator in operators if chosen(operator)])

    tokens = parts(lambda operator: operator.name not in HEAD + ATTENTION)
    head, attention = parts(lambda operator: operator.name in HEAD), parts(lambda operator: operator.name in ATTENTION)
    compute, memory, communication, launch = (tokens[part] + head[part] + attention[part] for part in range(4))
    gap_s = 0.0 if ideal else HOST.layer_gap_s * len(load_model(name).layers)
    host_s = fresh(name, ideal=ideal).step_time(work).host_s
    return StepTime(host_s, compute, memory, communication, launch + gap_s)


works = st.tuples(
    st.lists(st.integers(1, 100_000), max_size=6),
    st.lists(st.tuples(st.integers(1, 2_048), st.integers(0, 50_000)), max_size=2),
)
Drawn = tuple[list[int], list[tuple[int, int]]]


def step(name: str, drawn: Drawn) -> StepWork:
    contexts, chunks = drawn
    inside = tuple(sum(min(context, window) for context in contexts) for window in windows(load_model(name)))
    whole = tuple(PrefillChunk(*chunk) for chunk in chunks)
    return StepWork(whole, len(contexts), sum(contexts), inside, len(contexts) + len(whole))


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(NAMES), works, works, st.booleans())
def test_a_step_does_not_depend_on_the_steps_before(name: str, before: Drawn, drawn: Drawn, ideal: bool) -> None:
    work, warm = step(name, drawn), fresh(name, ideal=ideal)
    warm.step_time(step(name, before))
    first = warm.step_time(work)
    assert first == warm.step_time(work) == fresh(name, ideal=ideal).step_time(work)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(NAMES), works, st.booleans())
def test_tables_hold_what_the_operators_sum_to(name: str, drawn: Drawn, ideal: bool) -> None:
    """Steps that only decode take their rates from a table: the same sum, in another order."""
    work = step(name, drawn)
    assert fresh(name, ideal=ideal).step_time(work) == pytest.approx(untabulated(name, work, ideal=ideal), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(NAMES), st.lists(st.integers(1, 40_000), min_size=1, max_size=40), st.booleans())
def test_decode_time_is_the_step_time_to_the_bit(name: str, contexts: list[int], ideal: bool) -> None:
    work, cost = step(name, (contexts, [])), fresh(name, ideal=ideal)
    linear = cost.decode_time(len(contexts))
    if linear is not None:
        assert linear.at(work.decode_context_tokens, work.decode_window_tokens) == cost.step_time(work)


def test_parts_sum_to_the_device(make_work: Make) -> None:
    for name in NAMES:
        time = fresh(name).step_time(make_work(name, [900] * 9, (300, 40)))
        assert time.device_s == time.compute_s + time.memory_s + time.communication_s + time.launch_s
        assert min(time[1:]) > 0.0


def test_ideal_steps_do_not_sample(make_work: Make) -> None:
    """Datasheet arithmetic ends with the LM head; calibrated, 8 bytes per logit of the whole vocabulary and 20 us."""
    work = make_work("llama-3.1-8b", [10] * 64)
    ideal, measured = (fresh("llama-3.1-8b", ideal=ideal).operators(work) for ideal in (True, False))
    assert "sampler" not in [operator.name for operator in ideal]
    sampler = measured[-1]
    assert (sampler.name, sampler.hbm_bytes) == ("sampler", 64 * 128_256 * 8)
    assert sampler.parts.launch_s == 20e-6


def test_norms_over_all_heads_exchange_two_numbers_per_token(make_work: Make) -> None:
    """MiniMax-M2: an FP32 sum of squares for queries and one for keys, not a hidden state."""
    device = H100.efficiency.all_reduce[8]
    operators = fresh("minimax-m2.5", ranks=8).operators(make_work("minimax-m2.5", [], (4_000, 0)))
    small, large = (operator.seconds / operator.count for operator in operators if operator.name == "all-reduce")
    assert small == pytest.approx(device.latency_s + 4_000 * 8 / device.bytes_per_s)
    assert large == pytest.approx(device.latency_s + 4_000 * 3_072 * 2 / device.bytes_per_s)


def test_experts_move_their_activations_beside_the_products(make_work: Make) -> None:
    """Gathering, activation and weighted sum are kernels of their own; the ideal overlaps them."""
    work = make_work("qwen3-30b-a3b", [], (8_192, 0))
    ideal, measured = (
        next(
            operator
            for operator in fresh("qwen3-30b-a3b", ranks=1, ideal=ideal).operators(work)
            if operator.name == "experts"
        )
        for ideal in (True, False)
    )
    moved = 48 * 8_192 * 8 * (2 * 2_048 + 3 * 768) * 2
    assert ideal.parts.memory_s == 0.0
    assert measured.parts.memory_s == pytest.approx(moved / (0.8 * H100.hbm_bytes_per_s))
    assert measured.hbm_bytes == pytest.approx(ideal.hbm_bytes)
