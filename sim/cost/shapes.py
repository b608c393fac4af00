"""The matrix products of one decoder layer on one GPU under tensor parallelism, as shapes.

Query heads, feed-forward columns and the vocabulary divide over the ranks; keys and values replicate once there are
more ranks than KV heads; MLA's down-projections, routers and norms are on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.spec import (
    Attention,
    DenseFfn,
    DType,
    LatentAttention,
    LinearAttention,
    MoeFfn,
    WeightFormat,
)


@dataclass(frozen=True, slots=True)
class Gemm:
    """Every token of the step times an (inner x columns) weight."""

    name: str
    columns: float
    inner: float
    dtype: DType


def split(heads: int, ranks: int) -> int:
    """Heads of one rank; each rank has at least one (they replicate)."""
    return max(1, heads // ranks)


def attention_gemms(
    attention: Attention | LatentAttention | LinearAttention, weights: WeightFormat, hidden: int, ranks: int
) -> tuple[Gemm, ...]:
    """Projections around one layer's attention."""
    dtype, out_dtype = weights.attention, weights.attention_out or weights.attention
    if isinstance(attention, Attention):
        heads = split(attention.query_heads, ranks)
        key_value = 0 if attention.shares_kv else split(attention.kv_heads, ranks)
        queries = heads * attention.head_dim * (2 if attention.output_gate else 1)
        value_dim = 0 if attention.keys_are_values else attention.value_head_dim
        columns = queries + key_value * (attention.head_dim + value_dim)
        return (
            Gemm("qkv", columns, hidden, dtype),
            Gemm("attention out", hidden, heads * attention.value_head_dim, out_dtype),
        )
    if isinstance(attention, LatentAttention):
        out = Gemm("attention out", hidden, split(attention.query_heads, ranks) * attention.value_head_dim, out_dtype)
        return (*_latent_gemms(attention, hidden, dtype, ranks), out)
    outward = attention.heads * attention.value_dim / ranks
    inward = attention.projection_parameters / hidden / ranks - outward
    kind = attention.kind
    return (Gemm(f"{kind} in", inward, hidden, dtype), Gemm(f"{kind} out", hidden, outward, out_dtype))


def _latent_gemms(attention: LatentAttention, hidden: int, dtype: DType, ranks: int) -> tuple[Gemm, ...]:
    heads = split(attention.query_heads, ranks)
    latent = attention.kv_lora_rank + attention.rope_head_dim
    query = heads * (attention.nope_head_dim + attention.rope_head_dim)
    down = (attention.query_lora_rank or 0) + latent
    gemms = [Gemm("latent down", down, hidden, dtype)]
    gemms.append(Gemm("query up", query, attention.query_lora_rank or hidden, dtype))
    gemms.append(
        Gemm("latent up", heads * (attention.nope_head_dim + attention.value_head_dim), attention.kv_lora_rank, dtype)
    )
    if attention.index_heads:
        inner = attention.query_lora_rank or hidden
        gemms.append(Gemm("index query", attention.index_heads * attention.index_head_dim, inner, dtype))
        gemms.append(Gemm("index key", attention.index_head_dim, hidden, dtype))
    return tuple(gemms)


def dense_gemms(intermediate: int, matrices: int, hidden: int, dtype: DType, ranks: int, name: str) -> tuple[Gemm, ...]:
    """A feed-forward block: (gate and) up, then down."""
    width = intermediate / ranks
    return (Gemm(f"{name} up", (matrices - 1) * width, hidden, dtype), Gemm(f"{name} down", hidden, width, dtype))


def ffn_gemms(ffn: DenseFfn | MoeFfn, weights: WeightFormat, hidden: int, ranks: int) -> tuple[Gemm, ...]:
    """What every token passes: the dense block, or the router and the shared experts."""
    if isinstance(ffn, DenseFfn):
        return dense_gemms(ffn.intermediate, ffn.matrices, hidden, weights.dense_ffn, ranks, "mlp")
    router = Gemm("router", ffn.experts, hidden, weights.router)
    if not ffn.shared_intermediate:
        return (router,)
    shared = dense_gemms(ffn.shared_intermediate, ffn.matrices, hidden, weights.shared_experts, ranks, "shared expert")
    return (router, *shared)
