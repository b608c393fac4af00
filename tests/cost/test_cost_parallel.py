"""Stages, expert shares and data-parallel ranks, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import LinearCost, RooflineCost, SpeculativeCost, kv_capacity
from sim.cost.curves import busiest_share
from sim.cost.memory import activation_bytes, kv_budget
from sim.hardware import HostOverheads, MoeCurve, load_profile
from sim.models import ModelSpec, load_model, with_weight_dtype
from sim.models.memory import kv_bytes_per_token
from sim.models.parallel import stages
from sim.models.spec import MoeFfn
from sim.parallel import Parallelism
from sim.work import PrefillChunk, StepWork

H100 = load_profile("h100-sxm")
IDLE = StepWork((), 0, 0, (), 0)
HOST = HostOverheads(
    step_s=1e-3,
    sequence_s=1e-5,
    layer_gap_s=1e-6,
    prefill_layer_s=1e-5,
    request_latency_s=0.0,
    request_serial_s=0.0,
    source="by hand",
)


def decodes(sequences: int, context: int = 1_000) -> StepWork:
    return StepWork((), sequences, sequences * context, (sequences * context,), sequences)


def prefill(tokens: int) -> StepWork:
    return StepWork((PrefillChunk(tokens, 0),), 0, 0, (0,), 1)


def routed(model: ModelSpec, **changes: int) -> ModelSpec:
    """The model with other routed experts."""
    return replace(
        model,
        layers=tuple(
            replace(layer, ffn=replace(layer.ffn, **changes)) if isinstance(layer.ffn, MoeFfn) else layer
            for layer in model.layers
        ),
    )


def test_stages_send_hidden_states_and_the_first_one_pays_the_host() -> None:
    """Llama-3.1-70B, 16 tokens: 16 x 8192 x 2 = 262,144 bytes, 1.001 us at 262 GB/s and 4.3 us before that.

    The host: 1 ms, 16 x 10 us, no prefill. Gaps between kernels: 20 layers x 1 us on every stage.
    """
    cost = RooflineCost(load_model("llama-3.1-70b"), H100, parallel=Parallelism(pipeline=4), host=HOST)
    bare = RooflineCost(load_model("llama-3.1-70b"), H100, parallel=Parallelism(pipeline=4))
    times = cost.stage_times(decodes(16))
    assert [time.communication_s for time in times] == pytest.approx([4.3e-6 + 262_144 / 262e9] * 3 + [0.0])
    assert [time.host_s for time in times] == pytest.approx([1e-3 + 16e-5, 0.0, 0.0, 0.0])
    gaps = [one.launch_s - other.launch_s for one, other in zip(times, bare.stage_times(decodes(16)), strict=True)]
    assert gaps == pytest.approx([20e-6] * 4)


def test_what_the_first_and_the_last_stage_have_besides() -> None:
    """Ideal, in two halves of 16 layers each: Llama-3.1-8B's embedding reads and writes 2 x 4096 x 2 bytes per token.

    The LM head is 128,256 x 4,096 weights in 16 bits and 2 x (128,256 + 4,096) bytes per row; one token: bound by
    memory. One stage sends 8,192 bytes at 450 GB/s.
    """
    cost = RooflineCost(load_model("llama-3.1-8b"), H100, parallel=Parallelism(pipeline=2), ideal=True)
    first, last = cost.stage_times(decodes(1))
    embedding_s = 4 * 4_096 / H100.hbm_bytes_per_s
    head_s = 2 * (128_256 * 4_096 + 128_256 + 4_096) / H100.hbm_bytes_per_s
    assert last.memory_s - first.memory_s == pytest.approx(head_s - embedding_s)
    assert (first.communication_s, last.communication_s) == pytest.approx((8_192 / 450e9, 0.0))


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b"]),
    st.sampled_from([2, 3, 5]),
    st.integers(1, 50),
    st.integers(0, 3_000),
    st.booleans(),
)
def test_stages_sum_to_the_whole(name: str, pipeline: int, sequences: int, tokens: int, ideal: bool) -> None:
    """A step that has the replica to itself passes them one after the other."""
    chunks = (PrefillChunk(tokens, 0),) if tokens else ()
    work = StepWork(chunks, sequences, 900 * sequences, (128 * sequences,), sequences + len(chunks))
    parallel = Parallelism(pipeline=pipeline)
    cost = RooflineCost(load_model(name), H100, parallel=parallel, host=HOST, ideal=ideal, graph_sizes=(8, 32))
    times, whole = cost.stage_times(work), cost.step_time(work)
    for part in range(5):
        assert sum(time[part] for time in times) == pytest.approx(whole[part], rel=1e-9)
    single = RooflineCost(load_model(name), H100, host=HOST, ideal=ideal, graph_sizes=(8, 32))
    assert single.stage_times(work) == (single.step_time(work),)
    assert whole.communication_s > single.step_time(work).communication_s


def test_the_worst_stage_decides_the_kv_pool() -> None:
    """gpt-oss-120b in 5 stages has 7, 7, 7, 8 and 7 of its 36 layers; a block is on all of them.

    The fourth has no table, but 8 layers of experts and KV: the least room per block.
    """
    model, parallel = load_model("gpt-oss-120b"), Parallelism(pipeline=5)
    assert [last - first for first, last in stages(model, parallel)] == [7, 7, 7, 8, 7]
    profile = load_profile("h100-sxm")
    budget = {
        "gpu_memory_utilization": 0.9,
        "max_batched_tokens": 8_192,
        "max_sequences": 256,
        "graphs_counted": True,
        "share": "of-device",
    }
    found = kv_capacity(
        model,
        profile,
        parallel=parallel,
        kv_dtype="auto",
        block_tokens=16,
        request_tokens=1_000,
        reserved_blocks=1,
        window_groups=False,
        **budget,  # type: ignore[arg-type]
    )
    assert found is not None
    blocks = []
    for stage, (first, last) in enumerate(stages(model, parallel)):
        growing, inside = (kv_bytes_per_token(model, 1, "auto", window=w, layers=(first, last)) for w in (None, 128))
        per_block = (1_000 * growing + 128 * inside) / 1_000 * 16
        left = kv_budget(model, profile, parallel=parallel, stage=stage, **budget).kv_bytes  # type: ignore[arg-type]
        blocks.append(int(left // per_block))
    assert found.blocks == min(blocks) == blocks[3]
    assert found.budget == kv_budget(model, profile, parallel=parallel, stage=3, **budget)  # type: ignore[arg-type]


def test_the_busiest_share_of_experts() -> None:
    """Its excess at 8 shares is the curve's; a seventh of it at 2, twice it at 16; and never more than everything."""
    curve = MoeCurve(launch_s=0.0, memory=1.0, compute=1.0, expert_parallel_imbalance=1.4)
    assert [busiest_share(curve, shares) for shares in (1, 2, 8, 16)] == pytest.approx([1.0, 1.2, 2.4, 3.8])
    assert busiest_share(replace(curve, expert_parallel_imbalance=20.0), 8) == 8.0


def expert_bytes(cost: RooflineCost, work: StepWork) -> float:
    return sum(operator.hbm_bytes for operator in cost.operators(work) if operator.name == "experts")


def test_whole_experts_or_a_part_of_each() -> None:
    """Ideal, so that shares are even: 8 GPUs read the same weights either way, whole experts or an eighth of each.

    What differs is the tokens' own traffic per layer: 64 x 8 copies of (2 x 4096 + 3 x 1536 / 8) numbers under tensor
    parallelism, an eighth of the copies with (2 x 4096 + 3 x 1536) under expert parallelism (Qwen3-235B, 94 layers).
    """
    model, work = load_model("qwen3-235b-a22b"), decodes(64)
    tensor, expert = (
        expert_bytes(RooflineCost(model, H100, parallel=parallel, ideal=True), work)
        for parallel in (Parallelism(tensor=8), Parallelism(tensor=8, expert=8))
    )
    copies = 94 * 64 * 8 * 2
    assert tensor - expert == pytest.approx(copies * (8_192 + 576) - copies / 8 * (8_192 + 4_608))


def test_expert_parallelism_inside_a_node_keeps_the_all_reduces() -> None:
    """All ranks have all tokens, so nothing is dispatched: sums go through the all-reduce as before."""
    model, work = load_model("qwen3-235b-a22b"), decodes(64)
    one, other = (
        RooflineCost(model, H100, parallel=parallel).step_time(work)
        for parallel in (Parallelism(tensor=8), Parallelism(tensor=8, expert=8))
    )
    assert one.communication_s == other.communication_s
    assert 1.0 < other.device_s / one.device_s < 1.04


def test_ranks_gather_all_tokens() -> None:
    """Qwen3-30B-A3B, 2 ranks of 64 tokens: each gets the other's 64 x 2048 x 2 bytes at 450 GB/s and gives back sums.

    48 layers, twice. All-to-all would send each token to 8 experts, half of them elsewhere: four times as much.
    """
    cost = RooflineCost(load_model("qwen3-30b-a3b"), H100, parallel=Parallelism(data=2, expert=2), ideal=True)
    time = cost.group_time([decodes(64)] * 2)
    assert time.communication_s == pytest.approx(48 * 2 * 64 * 2_048 * 2 / 450e9)


def test_tokens_go_to_their_experts_alone_where_that_is_less() -> None:
    """With one expert per token and 8 shares, 7 of 8 tokens leave: 64 x 7/8 x 2048 x 2 bytes each way per layer.

    Gathering would bring 7 x 64 tokens to each.
    """
    model = routed(load_model("qwen3-30b-a3b"), experts_per_token=1)
    cost = RooflineCost(model, H100, parallel=Parallelism(data=8, expert=8), ideal=True)
    assert cost.group_time([decodes(64)] * 8).communication_s == pytest.approx(48 * 2 * 56 * 2_048 * 2 / 450e9)


def test_the_slowest_rank_sets_the_step() -> None:
    """In attention by its contexts, in dense parts by its tokens; an idle rank runs one token."""
    model, parallel = load_model("qwen3-30b-a3b"), Parallelism(data=2, expert=2)
    cost = RooflineCost(model, H100, parallel=parallel, host=HOST)
    long, short = decodes(8, 30_000), decodes(8, 100)
    assert cost.group_time([long, short]) == cost.group_time([short, long])
    assert cost.group_time([long, short]).device_s == pytest.approx(cost.group_time([long, long]).device_s)
    assert cost.group_time([short, short]).device_s < cost.group_time([long, short]).device_s
    assert cost.group_time([long, IDLE]).device_s < cost.group_time([long, short]).device_s
    one_more = decodes(1, 0)._replace(sampled_sequences=0)
    assert cost.group_time([long, IDLE]).device_s == pytest.approx(cost.group_time([long, one_more]).device_s)
    assert cost.group_time([long, IDLE]).host_s == pytest.approx(1e-3 + 8e-5)


def test_graphs_pad_all_ranks_to_the_largest() -> None:
    """40 and 1 decodes run as 64 and 64; a prompt's step is as it is."""
    model, parallel = load_model("qwen3-30b-a3b"), Parallelism(data=2, expert=2)
    padded = RooflineCost(model, H100, parallel=parallel, graph_sizes=(64,))
    plain = RooflineCost(model, H100, parallel=parallel)
    communication = [cost.group_time([decodes(40), decodes(1)]).communication_s for cost in (padded, plain)]
    wanted = [plain.group_time([decodes(64), decodes(64)]).communication_s, communication[1]]
    assert communication == pytest.approx(wanted)
    assert communication[0] > communication[1]
    works = [prefill(40), decodes(1)]
    assert padded.group_time(works) == plain.group_time(works)


def test_the_experts_of_a_group_are_shared_and_its_attention_is_not() -> None:
    """Ideal Qwen3-30B-A3B prefill, experts bound by compute: 2 ranks of 16,384 tokens compute as long as one GPU does
    for 16,384, whether each has half of the experts or a half of each.
    """
    model, work = load_model("qwen3-30b-a3b"), prefill(16_384)
    alone = RooflineCost(model, H100, ideal=True).step_time(work)
    for parallel in (Parallelism(data=2, expert=2), Parallelism(data=2)):
        both = RooflineCost(model, H100, parallel=parallel, ideal=True).group_time([work, work])
        assert both.compute_s == pytest.approx(alone.compute_s)


def test_stages_of_a_group_sum_to_it() -> None:
    """Two ranks in each of two stages."""
    parallel = Parallelism(data=2, pipeline=2, expert=2)
    cost = RooflineCost(load_model("qwen3-30b-a3b"), H100, parallel=parallel, host=HOST)
    works = [decodes(8), prefill(300)]
    first, last = cost.group_stage_times(works)
    assert [one + other for one, other in zip(first, last, strict=True)] == pytest.approx(list(cost.group_time(works)))


def test_tensor_parallelism_over_pcie_does_not_pay() -> None:
    """Llama-3.1-70B in FP8, one prompt of 2,048 tokens: 160 all-reduces of 33.6 MB.

    Eight L40S reduce at 0.832 GB/s: 160 x 33.6e6 / 0.832e9 = 6.5 s; two at 19.1 GB/s: 0.28 s. NVLink takes 0.03 s.
    """
    model = with_weight_dtype(load_model("llama-3.1-70b"), "fp8")

    def seconds(device: str, ranks: int, work: StepWork) -> float:
        return RooflineCost(model, load_profile(device), parallel=Parallelism(tensor=ranks)).step_time(work).device_s

    for work in (prefill(2_048), decodes(16, 2_000)):
        assert seconds("l40s", 8, work) > seconds("l40s", 2, work)
        assert seconds("h100-sxm", 8, work) < seconds("h100-sxm", 2, work)


def test_activations_of_experts_have_room_for_all_ranks_tokens() -> None:
    """Qwen3-30B-A3B: 8 copies of 2 x 2048 tokens with 3 x 768 + 2048 numbers, and 3 hidden states of 2048 tokens."""
    model = load_model("qwen3-30b-a3b")
    wanted = 2_048 * (2 * 8 * (3 * 768 + 2_048) + 3 * 2_048) * 2
    assert activation_bytes(model, Parallelism(data=2, expert=2), 2_048, 1) == wanted
    first = activation_bytes(model, Parallelism(pipeline=2), 16, 1_024, stage=0)
    assert first < activation_bytes(model, Parallelism(pipeline=2), 16, 1_024, stage=1) == 1_024 * 151_936 * 10


def test_a_linear_step_is_cut_into_equal_stages() -> None:
    """10 ms and 1 ms per decode: 14 ms for 4, 7 ms on each of two stages; the slower of two ranks has 6."""
    cost = LinearCost(step_s=10e-3, step_s_per_sequence=1e-3, stages=2)
    assert [time.device_s for time in cost.stage_times(decodes(4))] == pytest.approx([7e-3, 7e-3])
    assert cost.group_time([decodes(4), decodes(6), IDLE]).device_s == pytest.approx(16e-3)
    assert [time.device_s for time in cost.group_stage_times([decodes(6), IDLE])] == pytest.approx([8e-3, 8e-3])


def test_drafts_are_made_on_the_last_stage_and_by_all_ranks() -> None:
    """A step alone and a group of one take the same; with two stages the first has none of the drafting."""
    small = RooflineCost(load_model("llama-3.2-1b"), H100)
    target = RooflineCost(load_model("llama-3.1-8b"), H100, parallel=Parallelism(pipeline=2))
    cost, work = SpeculativeCost(target, small, 3), decodes(4)._replace(draft_tokens=12)
    first, last = cost.stage_times(work)
    assert first == target.stage_times(work)[0]
    assert first.device_s + last.device_s == pytest.approx(cost.step_time(work).device_s)
    assert cost.group_stage_times([work])[1].device_s == pytest.approx(last.device_s)
    assert cost.group_time([work, IDLE]).device_s > target.group_time([work, IDLE]).device_s
