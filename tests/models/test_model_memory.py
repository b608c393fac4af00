"""What always holds of KV bytes and weights, whatever the model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import UnsupportedModel
from sim.models import abstract_model, load_model, preset_names
from sim.models.memory import (
    index_bytes_per_token,
    kv_bytes_per_request,
    kv_bytes_per_token,
    layer_kv_bytes_per_token,
    matmul_flops_per_token,
    state_bytes_per_request,
    weight_bytes,
    weight_bytes_per_gpu,
    windows,
)
from sim.models.parallel import check_pipeline_parallel, check_tensor_parallel, legal_tensor_parallel, stage_layers
from sim.models.spec import Attention
from sim.parallel import Parallelism

names = st.sampled_from(preset_names())
tokens = st.integers(1, 200_000)
degrees = st.sampled_from([1, 2, 4, 8, 16, 32, 64])
kv_dtypes = st.sampled_from(["auto", "bf16", "fp8"])
LATENT = ["deepseek-v2-lite", "deepseek-v3", "deepseek-v3.2", "kimi-k2", "glm-5", "glm-5.2"]


@settings(deadline=None)
@given(names, tokens, tokens, kv_dtypes)
def test_kv_never_shrinks_with_length(name, one, other, kv_dtype):
    spec = load_model(name)
    short, long = sorted((one, other))
    assert kv_bytes_per_request(spec, short, 1, kv_dtype) <= kv_bytes_per_request(spec, long, 1, kv_dtype)


@settings(deadline=None)
@given(names, tokens)
def test_past_its_windows_a_request_grows_by_full_layers_alone(name, beyond):
    spec = load_model(name)
    full = max(windows(spec), default=0)
    grown = kv_bytes_per_request(spec, full + beyond) - kv_bytes_per_request(spec, full)
    assert grown == beyond * (kv_bytes_per_token(spec, 1, "auto", window=None) + index_bytes_per_token(spec))


@settings(deadline=None)
@given(names, tokens)
def test_a_request_is_no_more_than_all_layers_growing(name, length):
    spec = load_model(name)
    growing = length * (kv_bytes_per_token(spec, 1, "auto") + index_bytes_per_token(spec))
    assert kv_bytes_per_request(spec, length) <= growing + state_bytes_per_request(spec)


@settings(deadline=None)
@given(st.sampled_from(LATENT), tokens, degrees)
def test_latents_are_on_every_rank(name, length, ranks):
    spec = load_model(name)
    assert kv_bytes_per_request(spec, length, ranks) == kv_bytes_per_request(spec, length, 1)


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(0, 6), st.sampled_from([64, 128]))
def test_grouped_kv_falls_with_ranks_until_heads_replicate(log_heads, log_ranks, head_dim):
    kv_heads, ranks = 2**log_heads, 2**log_ranks
    attention = Attention(query_heads=64, kv_heads=kv_heads, head_dim=head_dim, value_head_dim=head_dim, parameters=1)
    mine, doubled = (layer_kv_bytes_per_token(attention, degree, 2) for degree in (ranks, 2 * ranks))
    assert doubled == (mine if ranks >= kv_heads else mine / 2)
    assert ranks * mine >= layer_kv_bytes_per_token(attention, 1, 2)


@settings(deadline=None)
@given(names, st.integers(1, 8), tokens)
def test_stages_hold_the_whole_cache_between_them(name, stages, length):
    spec = load_model(name)
    cuts = [stage_layers(spec, stages, stage) for stage in range(stages)]
    assert [first for first, _ in cuts[1:]] == [last for _, last in cuts[:-1]]
    assert (cuts[0][0], cuts[-1][1]) == (0, len(spec.layers))
    held = sum(kv_bytes_per_request(spec, length, 1, "bf16", layers=cut) for cut in cuts)
    assert held == kv_bytes_per_request(spec, length, 1, "bf16")


@settings(deadline=None)
@given(names, st.integers(1, 8))
def test_stages_hold_the_whole_model_between_them(name, stages):
    """A tied table is on the first stage and on the last."""
    spec = load_model(name)
    held = sum(weight_bytes_per_gpu(spec, Parallelism(pipeline=stages), stage) for stage in range(stages))
    twice = 2 * spec.vocabulary * spec.hidden if spec.tied_embeddings and stages > 1 else 0
    assert held == pytest.approx(weight_bytes(spec) + twice, abs=stages)
    assert weight_bytes_per_gpu(spec, Parallelism(pipeline=stages)) * stages >= held


@settings(deadline=None)
@given(names, degrees)
def test_ranks_hold_at_least_the_whole_model_between_them(name, ranks):
    spec = load_model(name)
    share = weight_bytes_per_gpu(spec, Parallelism(tensor=ranks))
    assert share * ranks >= weight_bytes(spec) - ranks
    assert share <= weight_bytes(spec)


@settings(deadline=None)
@given(names, tokens)
def test_fp8_halves_keys_and_values_alone(name, length):
    spec = load_model(name)
    fixed = length * index_bytes_per_token(spec) + state_bytes_per_request(spec)
    half, whole = (kv_bytes_per_request(spec, length, 1, dtype) - fixed for dtype in ("fp8", "bf16"))
    assert 2 * half == whole


def test_what_divides_over_ranks_and_what_does_not():
    """Llama-3.1-8B on two GPUs: all but the norms in half."""
    spec = load_model("llama-3.1-8b")
    norms = 2 * (32 * 2 + 1) * 4096
    assert weight_bytes_per_gpu(spec, Parallelism(tensor=2)) == (weight_bytes(spec) - norms) / 2 + norms


def test_kv_projections_replicate_with_their_heads():
    """Qwen3-30B-A3B has 4 KV heads: from 4 to 8 ranks, a rank's K and V projections stay."""
    spec = load_model("qwen3-30b-a3b")
    keys = 48 * 2048 * 128 * 2 * 2
    norms = 2 * (48 * 2 + 1) * 2048
    router = 2 * 48 * 2048 * 128
    four, eight = (weight_bytes_per_gpu(spec, Parallelism(tensor=ranks)) for ranks in (4, 8))
    assert eight - keys - norms - router == (four - keys - norms - router) / 2


def test_latent_down_projections_are_on_every_rank():
    spec = load_model("deepseek-v2-lite")
    down = 27 * 2048 * (512 + 64) * 2
    router = 26 * 2048 * 64 * 2
    norms = 2 * (27 * 2 + 1) * 2048
    rest = weight_bytes(spec) - down - router - norms
    assert weight_bytes_per_gpu(spec, Parallelism(tensor=8)) == pytest.approx(rest / 8 + down + router + norms, abs=1)


def test_stages_as_vllm_cuts_them():
    """A remainder goes to the stages before the last, from the back."""
    spec = load_model("glm-4.7")
    cuts = [stage_layers(spec, 8, stage) for stage in range(8)]
    assert [last - first for first, last in cuts] == [11, 11, 11, 12, 12, 12, 12, 11]


def test_degrees_that_do_not_divide_the_heads():
    with pytest.raises(UnsupportedModel, match="tensor_parallel 3 does not divide the 32") as caught:
        check_tensor_parallel(load_model("llama-3.1-8b"), 3)
    assert caught.value.cure == "use one of 1, 2, 4, 8, 16, 32"


def test_degrees_that_do_not_divide_the_kv_heads():
    """phi-4 has 40 query heads and 10 KV heads: 4 ranks divide the one and not the other."""
    with pytest.raises(UnsupportedModel, match="10 KV heads") as caught:
        check_tensor_parallel(load_model("phi-4"), 4)
    assert caught.value.cure == "use one of 1, 2, 5, 10, 20, 40"


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("llama-3.1-70b", [1, 2, 4, 8, 16, 32, 64]),
        ("qwen2.5-7b", [1, 2, 4, 28]),
        ("qwen3.5-27b", [1, 2, 4, 8]),
        ("nemotron-3-nano-30b-a3b", [1, 2, 4, 8, 16, 32]),
        ("deepseek-v3", [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_legal_degrees(name, legal):
    spec = load_model(name)
    assert legal_tensor_parallel(spec) == legal
    for ranks in legal:
        check_tensor_parallel(spec, ranks)


def test_more_stages_than_layers():
    with pytest.raises(UnsupportedModel, match="32 layers") as caught:
        check_pipeline_parallel(load_model("llama-3.1-8b"), 33)
    assert "32" in caught.value.cure


def test_flops_leave_out_the_look_up():
    spec = load_model("llama-3.1-8b")
    assert matmul_flops_per_token(spec) == 2 * (8_030_261_248 - 128_256 * 4096)
    tied = load_model("llama-3.2-1b")
    assert matmul_flops_per_token(tied) == 2 * 1_235_814_400


def test_an_abstract_model_has_no_kv():
    spec = abstract_model(8e9, "fp16")
    assert windows(spec) == ()
    assert kv_bytes_per_request(spec, 1_000_000) == 0
    assert legal_tensor_parallel(spec, 4) == [1, 2, 3, 4]
    assert matmul_flops_per_token(spec) == 16_000_000_000
