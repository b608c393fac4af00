"""Steps of whole models: operators and their sum, what grows and what does not, sanity against hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import Operator, RooflineCost
from sim.cost.attention import AttentionCost
from sim.cost.device import Device
from sim.cost.memory import bandwidth_bound_tokens_per_s
from sim.cost.operators import total
from sim.cost.shapes import attention_gemms, ffn_gemms
from sim.engine.versions.vllm import HOST as VLLM_HOST
from sim.errors import DoesNotFit
from sim.hardware import HostOverheads, load_profile, with_overrides
from sim.models import from_config, load_model, preset_names, with_weight_dtype
from sim.models.dtypes import stored_bytes
from sim.models.memory import weight_bytes_per_gpu, windows
from sim.models.parallel import legal_tensor_parallel
from sim.models.spec import ModelSpec, MoeFfn
from sim.parallel import Parallelism
from sim.work import PrefillChunk, StepWork

H100 = load_profile("h100-sxm")
HOST = HostOverheads(
    step_s=1e-3,
    sequence_s=1e-5,
    layer_gap_s=1e-5,
    prefill_layer_s=2e-5,
    request_latency_s=0.0,
    request_serial_s=0.0,
    source="made up",
)
KINDS = {
    "dense": "llama-3.1-8b",
    "moe": "qwen3-30b-a3b",
    "mla": "deepseek-v3",
    "mla-indexed": "deepseek-v3.2",
    "mla-shared-index": "glm-5.2",
    "hybrid-delta": "qwen3-next-80b-a3b",
    "hybrid-mamba": "nemotron-3-nano-30b-a3b",
    "windowed": "gpt-oss-120b",
    "windowed-dense": "gemma-3-27b",
    "two-head-dims": "mimo-v2-flash",
}
each_kind = pytest.mark.parametrize("name", KINDS.values(), ids=KINDS.keys())
STEPS = {
    "decode": ([900, 12_000, 3], ()),
    "prefill": ([], ((2_048, 0),)),
    "chunk": ([], ((512, 7_000),)),
    "mixed": ([1, 5_000], ((300, 0), (64, 9_000))),
}
Make = Callable[..., StepWork]


def calibrated(name: str, **kwargs: object) -> RooflineCost:
    return RooflineCost(load_model(name), H100, **kwargs)  # type: ignore[arg-type]


def device_s(name: str, work: StepWork, **kwargs: object) -> float:
    return calibrated(name, **kwargs).step_time(work).device_s


def named(operators: list[Operator], name: str) -> list[Operator]:
    return [operator for operator in operators if operator.name == name]


@each_kind
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("ideal", [True, False], ids=["ideal", "calibrated"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_operators_sum_to_the_step(make_work: Make, name: str, step: str, ideal: bool, ranks: int) -> None:
    """All of the device's time but the engine's gaps between layers."""
    contexts, chunks = STEPS[step]
    work = make_work(name, contexts, *chunks)
    cost = calibrated(name, ideal=ideal, parallel=Parallelism(tensor=ranks), host=HOST, graph_sizes=(1, 2, 4, 8))
    time, parts = cost.step_time(work), total(cost.operators(work))
    gap = 0.0 if ideal else HOST.layer_gap_s * len(load_model(name).layers)
    assert time.compute_s == pytest.approx(parts.compute_s, rel=1e-12)
    assert time.memory_s == pytest.approx(parts.memory_s, rel=1e-12)
    assert time.communication_s == pytest.approx(parts.communication_s, rel=1e-12)
    assert time.launch_s - gap == pytest.approx(parts.launch_s, rel=1e-9, abs=1e-15)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(KINDS.values())),
    st.lists(st.integers(1, 100_000), max_size=8),
    st.lists(st.tuples(st.integers(1, 4_096), st.integers(0, 50_000)), max_size=3),
    st.booleans(),
    st.sampled_from(["auto", "fp8"]),
)
def test_attention_is_the_same_with_and_without_operators(
    name: str, contexts: list[int], chunks: list[tuple[int, int]], ideal: bool, kv_dtype: str
) -> None:
    model = load_model(name)
    inside = tuple(sum(min(context, window) for context in contexts) for window in windows(model))
    whole = tuple(PrefillChunk(*chunk) for chunk in chunks)
    work = StepWork(whole, len(contexts), sum(contexts), inside, len(contexts))
    attention = AttentionCost(model, Device(H100, ideal=ideal), 2, kv_dtype)
    assert attention.parts(work) == pytest.approx(total(attention.operators(work)), rel=1e-12)


@each_kind
@pytest.mark.parametrize("step", STEPS)
def test_no_operator_beats_the_roofline(make_work: Make, name: str, step: str) -> None:
    """Ideal time is the FLOPs over the peak or the bytes over the bandwidth, whichever is longer."""
    contexts, chunks = STEPS[step]
    work = make_work(name, contexts, *chunks)
    for operator in calibrated(name, ideal=True).operators(work):
        compute = operator.flops / H100.peak_flops_per_s[operator.dtype]
        memory = operator.hbm_bytes / H100.hbm_bytes_per_s
        assert operator.seconds <= (compute + memory) * (1 + 1e-9)
        if operator.name != "prefill attention":  # a sum over chunks, each with its own bound
            assert operator.seconds >= max(compute, memory) * (1 - 1e-9)


@each_kind
@pytest.mark.parametrize("step", STEPS)
def test_calibrated_is_no_faster_than_ideal(make_work: Make, name: str, step: str) -> None:
    contexts, chunks = STEPS[step]
    work = make_work(name, contexts, *chunks)
    for ranks in (1, 8) if 8 in legal_tensor_parallel(load_model(name)) else (1, 2):
        parallel = Parallelism(tensor=ranks)
        assert device_s(name, work, parallel=parallel) >= device_s(name, work, parallel=parallel, ideal=True)


@settings(deadline=None)
@given(st.sampled_from(sorted(KINDS.values())), st.integers(1, 400), st.integers(1, 50_000), st.booleans())
def test_decodes_take_longer_with_sequences_and_contexts(name: str, sequences: int, context: int, ideal: bool) -> None:
    inside = windows(load_model(name))

    def decode_s(count: int, each: int) -> float:
        seen = tuple(count * min(each, window) for window in inside)
        return device_s(name, StepWork((), count, count * each, seen, count), ideal=ideal)

    base = decode_s(sequences, context) * (1 - 1e-12)
    assert decode_s(sequences + 1, context) >= base
    assert decode_s(sequences, context + 1) >= base


@settings(deadline=None)
@given(st.sampled_from(sorted(KINDS.values())), st.integers(1, 8_000), st.integers(0, 50_000), st.booleans())
def test_chunks_take_longer_with_tokens_and_contexts(name: str, tokens: int, context: int, ideal: bool) -> None:
    idle = tuple(0 for _ in windows(load_model(name)))

    def chunk_s(length: int, cached: int) -> float:
        return device_s(name, StepWork((PrefillChunk(length, cached),), 0, 0, idle, 1), ideal=ideal)

    base = chunk_s(tokens, context) * (1 - 1e-12)
    assert chunk_s(tokens + 1, context) >= base
    assert chunk_s(tokens, context + 1) >= base


@pytest.mark.parametrize("name", preset_names())
def test_a_step_reads_the_weights_that_capacity_counts(name: str) -> None:
    """Matrices as timed and as stored agree within 0.2 % (norms, convolutions, biases), on one rank and on more."""
    model = load_model(name)
    for ranks in legal_tensor_parallel(model, 8):
        tables = weight_tables(model, ranks)
        assert timed_bytes(model, ranks) == pytest.approx(
            weight_bytes_per_gpu(model, Parallelism(tensor=ranks)) - tables, rel=2e-3
        )


def weight_tables(model: ModelSpec, ranks: int) -> float:
    return (1 if model.tied_embeddings else 2) * model.vocabulary * model.hidden * 2 / ranks


def timed_bytes(model: ModelSpec, ranks: int) -> float:
    """Weights of every layer's operators, all experts hit."""
    summed = 0.0
    for layer in model.layers:
        weights = layer.weights or model.weights
        block, zeros = weights.scale_block, weights.zero_points
        gemms = [] if layer.attention is None else [*attention_gemms(layer.attention, weights, model.hidden, ranks)]
        if layer.ffn is not None:
            gemms += ffn_gemms(layer.ffn, weights, model.hidden, ranks)
        summed += sum(stored_bytes(gemm.columns * gemm.inner, gemm.dtype, block, zero_points=zeros) for gemm in gemms)
        if isinstance(layer.ffn, MoeFfn):
            routed = layer.ffn.experts * layer.ffn.expert_parameters / ranks
            summed += stored_bytes(routed, weights.experts, block, zero_points=zeros)
    return summed


def test_layers_of_a_mixed_checkpoint_run_in_their_own_dtype(make_work: Make) -> None:
    """Two of 32 layers in 16 bits: their matrices are apart, and the step is that much slower than all FP8."""
    model = with_weight_dtype(load_model("llama-3.1-8b"), "fp8")
    plain = load_model("llama-3.1-8b").weights
    kept = replace(model.layers[0], weights=plain)
    mixed = replace(model, layers=(kept, *model.layers[1:-1], kept))
    work = make_work("llama-3.1-8b", [100])
    cost = RooflineCost(mixed, H100, ideal=True)
    assert [(gemm.count, gemm.dtype) for gemm in named(cost.operators(work), "qkv")] == [(2, "bf16"), (30, "fp8")]
    slower = cost.step_time(work).device_s - RooflineCost(model, H100, ideal=True).step_time(work).device_s
    matrices = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert slower == pytest.approx(matrices / H100.hbm_bytes_per_s, rel=1e-6)


def test_an_output_projection_of_its_own_dtype(make_work: Make) -> None:
    model = load_model("llama-3.1-8b")
    model = replace(model, weights=replace(model.weights, attention_out="fp8"))
    operators = RooflineCost(model, H100).operators(make_work("llama-3.1-8b", [100]))
    assert [named(operators, name)[0].dtype for name in ("qkv", "attention out")] == ["bf16", "fp8"]


def test_values_that_are_keys_have_no_projection() -> None:
    """Gemma 4's global layers project queries and keys alone."""
    model = load_model("gemma-4-26b-a4b")
    shape = next(layer.attention for layer in model.layers if getattr(layer.attention, "keys_are_values", False))
    assert shape is not None
    qkv = attention_gemms(shape, model.weights, model.hidden, 1)[0]
    assert qkv.columns == 16 * 512 + 2 * 512


def test_graph_padding_computes_the_tokens_of_the_graph(make_work: Make) -> None:
    """Nine decodes run as sixteen, and no further than the largest graph; the ideal has no graphs."""
    cost = calibrated("llama-3.1-8b", graph_sizes=(1, 8, 16))
    nine, sixteen = (named(cost.operators(make_work("llama-3.1-8b", [10] * n)), "qkv")[0] for n in (9, 16))
    assert nine == sixteen
    beyond, plain = (
        named(each.operators(make_work("llama-3.1-8b", [10] * 17)), "qkv")[0]
        for each in (cost, calibrated("llama-3.1-8b"))
    )
    assert beyond == plain
    ideal = calibrated("llama-3.1-8b", graph_sizes=(16,), ideal=True)
    assert ideal.step_time(make_work("llama-3.1-8b", [10])) == calibrated("llama-3.1-8b", ideal=True).step_time(
        make_work("llama-3.1-8b", [10])
    )


def test_host_overheads_by_hand(make_work: Make) -> None:
    """Scaled by the host's slowdown; the gap between layers is the device's."""
    slow = with_overrides(H100, host_slowdown=2.0)
    model = load_model("llama-3.1-8b")
    cost, bare = RooflineCost(model, slow, host=HOST), RooflineCost(model, slow)
    decode, mixed = make_work("llama-3.1-8b", [10] * 3), make_work("llama-3.1-8b", [10] * 3, (50, 0))
    assert cost.step_time(decode).host_s == pytest.approx(2 * (1e-3 + 3e-5))
    assert cost.step_time(mixed).host_s == pytest.approx(2 * (1e-3 + 4e-5 + 32 * 2e-5))
    assert cost.step_time(decode).launch_s - bare.step_time(decode).launch_s == pytest.approx(2 * 32 * 1e-5)
    assert RooflineCost(model, slow, host=HOST, ideal=True).step_time(mixed).host_s == 0.0


def test_only_rows_that_sample_reach_the_head() -> None:
    cost = calibrated("llama-3.1-8b")
    chunk = (PrefillChunk(512, 0),)
    unfinished, finished = (cost.operators(StepWork(chunk, 0, 0, (), rows)) for rows in (0, 1))
    assert not named(unfinished, "lm head")
    assert named(finished, "lm head")[0].flops == 2 * 128_256 * 4096


def test_experts_read_are_those_hit(make_work: Make) -> None:
    """TileOPs#2127: DeepSeek-V3 with 32 tokens reads 163.3 of 256 experts, all of 44 M parameters in FP8."""
    cost = calibrated("deepseek-v3", ideal=True)
    expert = named(cost.operators(make_work("deepseek-v3", [1] * 32)), "experts")[0]
    weights = stored_bytes(3 * 7168 * 2048, "fp8", 128)
    activations = 32 * 8 * (2 * 7168 + 3 * 2048) * 2
    assert (expert.hbm_bytes / 58 - activations) / weights == pytest.approx(163.3, abs=0.05)


@pytest.mark.parametrize("ideal", [True, False])
def test_tensor_parallelism_divides_work_and_adds_communication(make_work: Make, ideal: bool) -> None:
    """Two all-reduces per layer of tokens x hidden in 16 bits."""
    work = make_work("llama-3.1-70b", [1_000] * 16)
    one, eight = (calibrated("llama-3.1-70b", parallel=Parallelism(tensor=n), ideal=ideal) for n in (1, 8))
    assert one.step_time(work).communication_s == 0.0
    assert eight.step_time(work).communication_s > 0.0
    assert one.step_time(work).device_s / 8 < eight.step_time(work).device_s < one.step_time(work).device_s
    reduces = named(eight.operators(work), "all-reduce")
    assert sum(operator.count for operator in reduces) == 160


def test_ring_of_an_ideal_link(make_work: Make) -> None:
    """2 (n - 1) / n of the message over the link, per all-reduce."""
    time = calibrated("llama-3.1-70b", parallel=Parallelism(tensor=4), ideal=True).step_time(
        make_work("llama-3.1-70b", [9] * 16)
    )
    message = 16 * 8192 * 2
    assert time.communication_s == pytest.approx(160 * message * 2 * 3 / 4 / 450e9)


@pytest.mark.parametrize("ideal", [True, False])
def test_tensor_parallelism_without_links_is_refused(ideal: bool) -> None:
    with pytest.raises(DoesNotFit, match="apple-m3-max is known that joins a group of 2") as caught:
        RooflineCost(
            load_model("llama-3.1-8b"), load_profile("apple-m3-max"), parallel=Parallelism(tensor=2), ideal=ideal
        )
    assert "at most 1" in caught.value.cure


def test_norms_over_all_heads_take_one_more_all_reduce(make_work: Make) -> None:
    """MiniMax-M2 normalises queries and keys over all heads."""
    work = make_work("minimax-m2.5", [9])
    reduces = named(calibrated("minimax-m2.5", parallel=Parallelism(tensor=8)).operators(work), "all-reduce")
    assert sum(operator.count for operator in reduces) == 3 * 62


def test_batch_one_of_llama_3_8b_stays_below_the_bandwidth(make_work: Make) -> None:
    """Case 22: 3.35e12 / 16.06e9 = 208.6 tokens/s at most; 6,000 were claimed, 93 measured."""
    model = with_weight_dtype(load_model("llama-3-8b"), "fp16")
    device = with_overrides(H100, hbm_bytes_per_s=3.35e12)
    bound = bandwidth_bound_tokens_per_s(model, device)
    assert round(bound, 1) == 208.6
    for ideal in (True, False):
        step = RooflineCost(model, device, ideal=ideal, host=HOST).step_time(make_work("llama-3-8b", [1]))
        # A step looks one row of the input embedding up: it reads 93 % of the weights.
        assert 1 / step.device_s < bound / (1 - 128_256 * 4096 / 8.03e9)


def test_batch_one_of_llama_3_1_8b_on_an_h100(make_work: Make) -> None:
    """6 to 8 ms per token are served in practice."""
    step = calibrated("llama-3.1-8b", host=VLLM_HOST, graph_sizes=(1, 2, 4)).step_time(
        make_work("llama-3.1-8b", [1_000])
    )
    assert 6e-3 < max(step.device_s, step.host_s) < 8e-3


def test_int4_weights_read_their_scales_and_zero_points() -> None:
    """4 bits, and 20 more per group of 128."""
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 1,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 64,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    }
    cost = RooflineCost(from_config(config, "awq", "here"), H100)
    out = named(cost.operators(StepWork((), 1, 1, (), 1)), "attention out")[0]
    assert out.hbm_bytes == 4096 * 4096 * (4 + 20 / 128) / 8 + 2 * 4096 * 2


def test_mixed_steps_slow_decode_attention_by_the_profiles_factor(make_work: Make) -> None:
    slower = replace(H100, efficiency=replace(H100.efficiency, mixed_step_decode=1.5))
    alone, mixed = make_work("llama-3.1-8b", [5_000] * 8), make_work("llama-3.1-8b", [5_000] * 8, (64, 0))
    model = load_model("llama-3.1-8b")

    def memory_s(work: StepWork, ideal: bool = False) -> float:
        operators = RooflineCost(model, slower, ideal=ideal).operators(work)
        return named(operators, "decode attention")[0].parts.memory_s

    assert memory_s(mixed) == pytest.approx(1.5 * memory_s(alone))
    assert memory_s(mixed, ideal=True) == memory_s(alone, ideal=True)


def test_a_step_without_work_is_the_hosts_alone() -> None:
    time = calibrated("qwen3-next-80b-a3b", host=HOST).step_time(StepWork((), 0, 0))
    assert (time.compute_s, time.memory_s, time.communication_s) == (0.0, 0.0, 0.0)


def test_what_bounds_an_operator() -> None:
    cost = calibrated("llama-3.1-8b")
    small = cost.operators(StepWork((), 1, 1, (), 1))
    large = cost.operators(StepWork((PrefillChunk(8_192, 0),), 0, 0, (), 1))
    assert {named(small, name)[0].bound for name in ("qkv", "mlp up")} == {"memory"}
    assert {named(large, name)[0].bound for name in ("qkv", "mlp up", "prefill attention")} == {"compute"}
    assert named(small, "sampler")[0].bound == "host"
