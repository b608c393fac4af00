"""Prefill attention of latent, sparse and shared caches, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sim.cost import Operator, RooflineCost
from sim.cost.curves import causal_area
from sim.hardware import load_profile
from sim.models import load_model
from sim.models.spec import Attention
from sim.work import StepWork

H100 = load_profile("h100-sxm")
Make = Callable[..., StepWork]


def attention(name: str, work: StepWork, *, ideal: bool = True) -> list[Operator]:
    operators = RooflineCost(load_model(name), H100, ideal=ideal).operators(work)
    return [operator for operator in operators if operator.name == "prefill attention"]


def test_grouped_prefill_by_hand(make_work: Make) -> None:
    """4 FLOPs per head, dimension and pair; queries and outputs of the chunk, keys and values of everything."""
    (operator,) = attention("llama-3.1-8b", make_work("llama-3.1-8b", [], (512, 1_000)))
    assert operator.flops == 32 * 4 * 32 * 128 * causal_area(512, 1_000, None)
    assert operator.hbm_bytes == 32 * (512 * 2 * 32 * 128 * 2 + 1_512 * 4_096)


def test_windowed_prefill_counts_what_is_inside_the_window(make_work: Make) -> None:
    """gpt-oss: 18 layers see 128 tokens, 18 see all."""
    per_pair = 4 * 64 * 64
    flops = sorted(operator.flops for operator in attention("gpt-oss-120b", make_work("gpt-oss-120b", [], (512, 50))))
    inside = sum(min(position, 128) for position in range(51, 563))
    assert flops == [18 * per_pair * inside, 18 * per_pair * causal_area(512, 50, None)]


def test_latent_prefill_expands_the_cached_context(make_work: Make) -> None:
    """DeepSeek-V3: 192 + 128 wide heads; each cached latent goes once more through the 512 x 32,768 up-projection."""
    (whole,) = attention("deepseek-v3", make_work("deepseek-v3", [], (1_000, 0)))
    (chunk,) = attention("deepseek-v3", make_work("deepseek-v3", [], (1_000, 3_000)))
    assert whole.flops == 61 * 2 * 128 * 320 * causal_area(1_000, 0, None)
    expand = 2 * 512 * 128 * 256 * 3_000
    assert chunk.flops == 61 * (2 * 128 * 320 * causal_area(1_000, 3_000, None) + expand)


def test_sparse_prefill_attends_to_the_best_and_scores_all(make_work: Make) -> None:
    """DeepSeek-V3.2: absorbed heads over 2,048 tokens at most; 64 index heads of 128 over every pair."""
    (operator,) = attention("deepseek-v3.2", make_work("deepseek-v3.2", [], (1_000, 9_000)))
    attended, scored = 1_000 * 2_048, causal_area(1_000, 9_000, None)
    assert operator.flops == 61 * (2 * 128 * (2 * 512 + 64) * attended + 2 * 64 * 128 * scored)
    assert operator.hbm_bytes == 61 * (1_000 * 128 * 1_088 * 2 + 10_000 * (1_152 + 132))


@pytest.mark.parametrize("ideal", [True, False])
def test_sparse_attention_pays_for_long_prompts_alone(make_work: Make, ideal: bool) -> None:
    """Beside DeepSeek-V3, the same model without an indexer: dearer at 2,000 tokens, cheaper at 60,000."""

    def seconds(name: str, cached: int) -> float:
        return attention(name, make_work(name, [], (2_000, cached)), ideal=ideal)[0].seconds

    assert seconds("deepseek-v3.2", 0) > seconds("deepseek-v3", 0)
    assert seconds("deepseek-v3.2", 60_000) < seconds("deepseek-v3", 60_000) / 2


def test_layers_that_share_a_cache_read_it(make_work: Make) -> None:
    """They hold no keys and values of their own, but attend to an earlier layer's."""
    model = load_model("llama-3.1-8b")
    first = model.layers[0]
    assert isinstance(first.attention, Attention)
    sharing = replace(first, attention=replace(first.attention, shares_kv=True))
    work = make_work("llama-3.1-8b", [700], (64, 100))

    def read(spec: object) -> dict[str, float]:
        summed: dict[str, float] = {}
        for operator in RooflineCost(spec, H100).operators(work):  # type: ignore[arg-type]
            summed[operator.name] = summed.get(operator.name, 0.0) + operator.hbm_bytes
        return summed

    plain, shared = read(model), read(replace(model, layers=(*model.layers[:16], *(sharing,) * 16)))
    for name in ("decode attention", "prefill attention"):
        assert shared[name] == plain[name]
    assert shared["qkv"] < plain["qkv"]
