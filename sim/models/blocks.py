"""The building blocks configs describe, with every parameter counted."""

from __future__ import annotations

from typing import Literal

from sim.models.spec import Attention, DenseFfn, LatentAttention, LinearAttention, MoeFfn


def grouped_attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_head_dim: int | None = None,
    window: int | None = None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    head_norms: bool = False,
    full_norms: bool = False,
    each_head_norms: bool = False,
    sinks: bool = False,
    output_gate: bool = False,
    value_is_key: bool = False,
) -> Attention:
    """Query, key, value and output projections, and what an architecture adds to them.

    ``head_norms``: Q and K are normalised per head; ``full_norms``: over all heads together;
    ``each_head_norms``: per head, with weights of its own. ``value_is_key``: no value
    projection of its own, though values are cached.
    """
    value_dim = value_head_dim or head_dim
    queries = heads * head_dim * (2 if output_gate else 1)
    keys, values = kv_heads * head_dim, 0 if value_is_key else kv_heads * value_dim
    count = hidden * (queries + keys + values) + heads * value_dim * hidden
    count += (queries + keys + values) * qkv_bias + hidden * out_bias
    count += 2 * head_dim * head_norms + (heads + kv_heads) * head_dim * (full_norms or each_head_norms) + heads * sinks
    return Attention(
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_dim,
        window_tokens=window,
        parameters=count,
        output_gate=output_gate,
        keys_are_values=value_is_key,
        norms_full_qk=full_norms,
    )


def latent_attention(
    hidden: int,
    heads: int,
    query_rank: int | None,
    kv_rank: int,
    rope_dim: int,
    nope_dim: int,
    value_dim: int,
    *,
    bias: bool = False,
    index_heads: int = 0,
    index_head_dim: int = 0,
    index_topk: int | None = None,
) -> LatentAttention:
    """Down- and up-projections of queries and of the latent, their norms, and a sparse indexer if there is one."""
    query_dim = heads * (nope_dim + rope_dim)
    if query_rank is None:
        count = hidden * query_dim
    else:
        count = hidden * query_rank + query_rank + query_rank * query_dim
    count += hidden * (kv_rank + rope_dim) + kv_rank
    count += kv_rank * heads * (nope_dim + value_dim) + heads * value_dim * hidden
    if bias:
        count += (query_rank or 0) + kv_rank + rope_dim + hidden
    index_count = 0
    if index_heads:
        index_count = (query_rank or hidden) * index_heads * index_head_dim
        index_count += hidden * index_head_dim + 2 * index_head_dim + hidden * index_heads
    return LatentAttention(
        query_heads=heads,
        query_lora_rank=query_rank,
        kv_lora_rank=kv_rank,
        rope_head_dim=rope_dim,
        nope_head_dim=nope_dim,
        value_head_dim=value_dim,
        parameters=count,
        index_parameters=index_count,
        index_heads=index_heads,
        index_head_dim=index_head_dim,
        index_topk_tokens=index_topk,
    )


def gated_delta_net(
    hidden: int, key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int
) -> LinearAttention:
    """Gated DeltaNet (arXiv 2412.06464) as Qwen3-Next lays it out: one convolution over queries, keys and values."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    projections = hidden * (2 * keys + 2 * values) + hidden * 2 * value_heads + values * hidden
    return LinearAttention(
        kind="gated-delta-net",
        projection_parameters=projections,
        parameters=projections + (2 * keys + values) * kernel + 2 * value_heads + value_dim,
        heads=value_heads,
        key_heads=key_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv_state_elements=(2 * keys + values) * (kernel - 1),
        recurrent_state_elements=value_heads * key_dim * value_dim,
    )


def mamba2(
    hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int, *, conv_bias: bool, bias: bool
) -> LinearAttention:
    """Mamba-2 (arXiv 2405.21060): in and out projections, a convolution, and a state of heads x head_dim x state."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    projections = hidden * (inner + channels + heads) + inner * hidden
    count = projections + channels * kernel + channels * conv_bias + 3 * heads + inner
    count += (inner + channels + heads + hidden) * bias
    return LinearAttention(
        kind="mamba2",
        projection_parameters=projections,
        parameters=count,
        heads=heads,
        key_dim=state,
        value_dim=head_dim,
        conv_state_elements=channels * (kernel - 1),
        recurrent_state_elements=heads * head_dim * state,
    )


def dense_ffn(hidden: int, intermediate: int, *, gated: bool = True, bias: bool = False) -> DenseFfn:
    """(Gate,) up and down."""
    matrices: Literal[2, 3] = 3 if gated else 2
    biases = ((matrices - 1) * intermediate + hidden) * bias
    return DenseFfn(intermediate=intermediate, matrices=matrices, parameters=matrices * hidden * intermediate + biases)


def moe_ffn(
    hidden: int,
    experts: int,
    per_token: int,
    intermediate: int,
    *,
    gated: bool = True,
    bias: bool = False,
    shared_intermediate: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
    router_extra: int = 0,
) -> MoeFfn:
    """Routed experts, their router, and shared experts (or a dense block beside them) of ``shared_intermediate``."""
    matrices: Literal[2, 3] = 3 if gated else 2
    return MoeFfn(
        experts=experts,
        experts_per_token=per_token,
        expert_intermediate=intermediate,
        matrices=matrices,
        expert_parameters=matrices * hidden * intermediate,
        expert_bias_parameters=((matrices - 1) * intermediate + hidden) * bias,
        shared_intermediate=shared_intermediate,
        shared_parameters=matrices * hidden * shared_intermediate + hidden * shared_gate,
        router_parameters=hidden * experts + experts * router_bias + router_extra,
    )
