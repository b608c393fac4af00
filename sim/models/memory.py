"""Parameters and bytes of a model: one function per quantity, used by capacity and timing alike.

Under tensor parallelism query heads, feed-forward columns, experts and the vocabulary divide; keys and values
replicate once there are more ranks than KV heads; MLA's latent and down-projections, routers and norms are on every
rank. Experts are split ``expert`` ways, each share over ``expert_tensor`` GPUs; everything else is on every
data-parallel rank. Functions of what a request caches take the tensor parallelism and the layers of a stage.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

from sim.errors import UnsupportedModel
from sim.models.dtypes import bytes_per_element, stored_bytes
from sim.models.parallel import ONE_GPU, stage_layers
from sim.models.spec import (
    Attention,
    DenseFfn,
    DType,
    LatentAttention,
    Layer,
    LinearAttention,
    ModelSpec,
    MoeFfn,
    WeightFormat,
)
from sim.parallel import Parallelism

KV_DTYPES = ("auto", "fp32", "bf16", "fp16", "fp8", "int8")
NEARLY_AS_MANY = 1.25
"""Below this ratio vLLM pads the rarer kind of layer instead of cutting the commoner one."""
INDEX_SCALE_BYTES = 4
"""An FP32 scale beside each cached FP8 index key (DeepSeek-V3.2's indexer in vLLM)."""


def parameters(spec: ModelSpec) -> int:
    """Weights of the language model: all experts, both embedding tables, norms and biases."""
    if spec.abstract_parameters is not None:
        return spec.abstract_parameters
    return sum(_layer_parameters(layer) for layer in spec.layers) + _ends(spec)


def active_parameters(spec: ModelSpec) -> int:
    """Weights one token passes: both embedding tables, routers, shared experts and its own routed experts counted."""
    if spec.abstract_parameters is not None:
        return spec.abstract_parameters
    routed = (layer.ffn for layer in spec.layers if isinstance(layer.ffn, MoeFfn))
    idle = sum(
        (ffn.experts - ffn.experts_per_token) * (ffn.expert_parameters + ffn.expert_bias_parameters) for ffn in routed
    )
    return parameters(spec) - idle


def matmul_flops_per_token(spec: ModelSpec) -> int:
    """2 x the active weights that multiply a token: all but the input embedding (a look-up) and attention itself."""
    lookup = 0 if spec.abstract_parameters is not None or spec.tied_embeddings else spec.vocabulary * spec.hidden
    return 2 * (active_parameters(spec) + index_parameters(spec) - lookup)


def index_parameters(spec: ModelSpec) -> int:
    """Weights of sparse attention's indexer, in the bytes but not in ``parameters``: published totals omit them."""
    latent = (layer.attention for layer in spec.layers if isinstance(layer.attention, LatentAttention))
    return sum(attention.index_parameters for attention in latent)


def _ends(spec: ModelSpec) -> int:
    tables = 1 if spec.tied_embeddings else 2
    return tables * spec.vocabulary * spec.hidden + spec.other_parameters


def _layer_parameters(layer: Layer) -> int:
    total = layer.norm_parameters
    if layer.attention is not None:
        total += layer.attention.parameters
    if isinstance(layer.ffn, DenseFfn):
        total += layer.ffn.parameters
    elif layer.ffn is not None:
        ffn = layer.ffn
        total += ffn.experts * (ffn.expert_parameters + ffn.expert_bias_parameters)
        total += ffn.shared_parameters + ffn.router_parameters
    return total


def weight_bytes(spec: ModelSpec) -> int:
    """Bytes of all weights as stored, scales included."""
    return weight_bytes_per_gpu(spec)


def weight_bytes_per_gpu(spec: ModelSpec, parallel: Parallelism = ONE_GPU, stage: int | None = None) -> int:
    """Bytes of weights on one GPU: of a pipeline stage, or of the worst one.

    The first stage has the embedding table, the last one the LM head (tied: the table again) and the final norm.
    """
    tensor = parallel.tensor
    if spec.abstract_parameters is not None:
        return round(stored_bytes(spec.abstract_parameters / tensor, spec.weights.attention))
    if stage is None:
        return max(weight_bytes_per_gpu(spec, parallel, index) for index in range(parallel.pipeline))
    first, last = stage_layers(spec, parallel.pipeline, stage)
    total = sum(_layer_bytes(layer, spec, parallel) for layer in spec.layers[first:last])
    table = spec.vocabulary * spec.hidden / tensor
    is_first, is_last = stage == 0, stage == parallel.pipeline - 1
    if is_first or (is_last and spec.tied_embeddings):
        total += _stored(table, spec.weights.embedding, spec.weights)
    if is_last:
        total += _stored(spec.other_parameters, spec.weights.norms, spec.weights)
        if not spec.tied_embeddings:
            total += _stored(table, spec.weights.lm_head, spec.weights)
    return round(total)


def _stored(count: float, dtype: DType, weights: WeightFormat) -> float:
    return stored_bytes(count, dtype, weights.scale_block, zero_points=weights.zero_points)


def _layer_bytes(layer: Layer, spec: ModelSpec, parallel: Parallelism) -> float:
    """What one GPU holds of a layer: all but the routed experts divides over its attention rank alone."""
    weights, ranks = layer.weights or spec.weights, parallel.tensor
    parts: list[tuple[float, DType]] = [(layer.norm_parameters, weights.norms)]
    if layer.attention is not None:
        out = spec.hidden * _values(layer.attention) / ranks
        parts.append((_attention_share(layer.attention, spec.hidden, ranks) - out, weights.attention))
        parts.append((out, weights.attention_out or weights.attention))
    if isinstance(layer.ffn, DenseFfn):
        parts.append((layer.ffn.parameters / ranks, weights.dense_ffn))
    elif layer.ffn is not None:
        ffn = layer.ffn
        held = share_of_experts(ffn, parallel.expert)
        parts += [
            (held * ffn.expert_parameters / parallel.expert_tensor, weights.experts),
            (held * ffn.expert_bias_parameters / parallel.expert_tensor, weights.norms),
            (ffn.shared_parameters / ranks, weights.shared_experts),
            (ffn.router_parameters, weights.router),
        ]
    return sum(_stored(count, dtype, weights) for count, dtype in parts)


def share_of_experts(ffn: MoeFfn, expert_parallel: int) -> int:
    """Routed experts of the share that has most: where they do not divide, some shares have one more."""
    return -(-ffn.experts // expert_parallel)


def _values(attention: Attention | LatentAttention | LinearAttention) -> int:
    """Width of what the output projection takes."""
    if isinstance(attention, LinearAttention):
        return attention.heads * attention.value_dim
    return attention.query_heads * attention.value_head_dim


def _attention_share(attention: Attention | LatentAttention | LinearAttention, hidden: int, ranks: int) -> float:
    """Parameters of one rank: what divides, and what replicates."""
    if isinstance(attention, Attention) and not attention.shares_kv:
        value_dim = 0 if attention.keys_are_values else attention.value_head_dim
        of_keys = hidden * attention.kv_heads * (attention.head_dim + value_dim)
        share = kv_heads_per_rank(attention.kv_heads, ranks) / attention.kv_heads
        return (attention.parameters - of_keys) / ranks + of_keys * share
    if isinstance(attention, LatentAttention):
        down = hidden * ((attention.query_lora_rank or 0) + attention.kv_lora_rank + attention.rope_head_dim)
        return (attention.parameters - down) / ranks + down + attention.index_parameters
    return attention.parameters / ranks


def kv_dtype_bytes(kv_dtype: str, spec: ModelSpec) -> float:
    """Bytes of one cached number; ``auto`` is the dtype the model computes in, whatever its weights' dtype.

    A checkpoint that was calibrated for another KV dtype and says so gets it, as in vLLM. Raises UnsupportedModel for a
    dtype that no cache is kept in.
    """
    if kv_dtype not in KV_DTYPES:
        raise UnsupportedModel(f"kv_dtype {kv_dtype} is not known", f"use one of {', '.join(KV_DTYPES)}")
    return bytes_per_element(spec.kv_dtype or spec.activation_dtype if kv_dtype == "auto" else kv_dtype)


def kv_heads_per_rank(kv_heads: int, tensor_parallel: int) -> int:
    """KV heads of the rank that has most: one at least, as they replicate once there are more ranks."""
    return -(-kv_heads // tensor_parallel)


def layer_kv_bytes_per_token(attention: Attention | LatentAttention, tensor_parallel: int, kv_bytes: float) -> float:
    """Cached bytes of one token in one layer on one rank. MLA: the whole latent on every rank."""
    if isinstance(attention, LatentAttention):
        return (attention.kv_lora_rank + attention.rope_head_dim) * kv_bytes
    if attention.shares_kv:
        return 0.0
    heads = kv_heads_per_rank(attention.kv_heads, tensor_parallel)
    return heads * (attention.head_dim + attention.value_head_dim) * kv_bytes


def windows(spec: ModelSpec) -> tuple[int, ...]:
    """Distinct sliding windows of the model, ascending."""
    found = {layer.attention.window_tokens for layer in spec.layers if isinstance(layer.attention, Attention)}
    return tuple(sorted(window for window in found if window is not None))


class KvGroups(NamedTuple):
    """Block tables that share one pool: the window of each (None: full attention), and the layers a block serves."""

    windows: tuple[int | None, ...]
    layers: int
    attention: Attention
    """Any of the layers: they cache equally many bytes."""


def kv_groups(spec: ModelSpec) -> KvGroups | None:
    """How vLLM (0.9 and later) shares its block pool between full and sliding layers of equal size.

    Layers of each kind are cut into groups of as many layers as the rarer kind has (or the commoner one, where they are
    nearly as many), so that a block of any group is equally large. None where layers differ in bytes or keep a state.
    """
    attentions = [layer.attention for layer in spec.layers if layer.attention is not None]
    plain = [attention for attention in attentions if isinstance(attention, Attention) and not attention.shares_kv]
    shapes = {(attention.kv_heads, attention.head_dim, attention.value_head_dim) for attention in plain}
    if len(plain) < len(attentions) or len(shapes) != 1:
        return None
    counts = Counter(attention.window_tokens for attention in plain)
    fewest, most = min(counts.values()), max(counts.values())
    size = most if most < NEARLY_AS_MANY * fewest else fewest
    ordered = sorted(counts, key=lambda window: (window is not None, window or 0))
    tables = tuple(window for window in ordered for _ in range(-(-counts[window] // size)))
    return KvGroups(tables, size, plain[0])


def layers_of_block(spec: ModelSpec, groups: KvGroups, layers: tuple[int, int]) -> int:
    """Layers of a pipeline stage that a block serves: of the block table that has most of them there."""
    first, last = layers
    attentions = [layer.attention for layer in spec.layers[first:last]]
    counts = Counter(one.window_tokens for one in attentions if isinstance(one, Attention) and not one.shares_kv)
    tables = Counter(groups.windows)
    return max((-(-count // tables[window]) for window, count in counts.items()), default=0)


def kv_bytes_per_token(
    spec: ModelSpec,
    tensor_parallel: int,
    kv_dtype: str,
    *,
    window: int | Literal["any"] | None = "any",
    layers: tuple[int, int] | None = None,
) -> int:
    """Keys and values one token adds on one rank: in layers of one ``window`` (None: that grow for ever), or in all."""
    kv_bytes = kv_dtype_bytes(kv_dtype, spec)
    first, last = layers or (0, len(spec.layers))
    total = 0.0
    for layer in spec.layers[first:last]:
        attention = layer.attention
        if isinstance(attention, Attention | LatentAttention):
            own = attention.window_tokens if isinstance(attention, Attention) else None
            if window in ("any", own):
                total += layer_kv_bytes_per_token(attention, tensor_parallel, kv_bytes)
    return round(total)


def index_bytes_per_token(spec: ModelSpec, layers: tuple[int, int] | None = None) -> int:
    """Keys of sparse attention's indexer, in FP8 with a scale, on every rank."""
    first, last = layers or (0, len(spec.layers))
    return sum(
        layer.attention.index_head_dim + INDEX_SCALE_BYTES
        for layer in spec.layers[first:last]
        if isinstance(layer.attention, LatentAttention) and layer.attention.index_heads
    )


def state_bytes_per_request(spec: ModelSpec, tensor_parallel: int = 1, layers: tuple[int, int] | None = None) -> int:
    """Fixed state of linear-attention layers, in the dtype the model computes in."""
    first, last = layers or (0, len(spec.layers))
    width = bytes_per_element(spec.activation_dtype)
    total = 0.0
    for layer in spec.layers[first:last]:
        if isinstance(layer.attention, LinearAttention):
            recurrent = 4 if layer.attention.recurrent_state_fp32 else width
            total += layer.attention.conv_state_elements * width + layer.attention.recurrent_state_elements * recurrent
    return round(total / tensor_parallel)


def kv_bytes_per_request(
    spec: ModelSpec,
    context_tokens: int,
    tensor_parallel: int = 1,
    kv_dtype: str = "auto",
    layers: tuple[int, int] | None = None,
) -> int:
    """Everything one request of ``context_tokens`` holds on one rank: growing and windowed KV, index keys, state."""
    growing = kv_bytes_per_token(spec, tensor_parallel, kv_dtype, window=None, layers=layers)
    total = context_tokens * (growing + index_bytes_per_token(spec, layers))
    for window in windows(spec):
        per_token = kv_bytes_per_token(spec, tensor_parallel, kv_dtype, window=window, layers=layers)
        total += min(context_tokens, window) * per_token
    return total + state_bytes_per_request(spec, tensor_parallel, layers)
