"""NVIDIA's decoders whose layers differ from one another: Nemotron-H's mixers, and Llamas cut by a search."""

from __future__ import annotations

from typing import Any

from sim.errors import UnsupportedModel
from sim.models.blocks import dense_ffn, grouped_attention, mamba2, moe_ffn
from sim.models.families.stack import Layers
from sim.models.fields import Fields
from sim.models.spec import Attention, DenseFfn, Layer, LinearAttention, MoeFfn

MIXERS = "M*-E"
ROUNDED_TO = 256
"""Feed-forward widths of a searched Llama are multiples of this."""


def nemotron_h(fields: Fields) -> Layers:
    """One mixer per layer, as ``hybrid_override_pattern`` spells: M Mamba-2, * attention, - MLP, E experts."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    pattern = fields.get("hybrid_override_pattern")
    if pattern is None:
        raise fields.missing("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != depth or set(pattern) - set(MIXERS):
        raise fields.wrong("hybrid_override_pattern", pattern, f"{depth} letters out of {MIXERS}")
    layers = {kind: _mixer(kind, fields, hidden) for kind in sorted(set(pattern))}
    return tuple(layers[kind] for kind in pattern)


def _mixer(kind: str, fields: Fields, hidden: int) -> Layer:
    attention = _mamba(fields, hidden) if kind == "M" else _attention(fields, hidden) if kind == "*" else None
    ffn: DenseFfn | MoeFfn | None = None
    if kind == "-":
        ffn = dense_ffn(hidden, fields.count("intermediate_size"), gated=False, bias=fields.flag("mlp_bias"))
    elif kind == "E":
        ffn = _experts(fields, hidden)
    return Layer(attention=attention, ffn=ffn, norm_parameters=hidden)


def _mamba(fields: Fields, hidden: int) -> LinearAttention:
    return mamba2(
        hidden,
        fields.count("mamba_num_heads"),
        fields.count("mamba_head_dim"),
        fields.count("n_groups"),
        fields.count("ssm_state_size"),
        fields.count("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("use_bias") or fields.flag("mamba_proj_bias"),
    )


def _attention(fields: Fields, hidden: int) -> Attention:
    bias = fields.flag("attention_bias")
    heads, kv_heads = fields.count("num_attention_heads"), fields.count("num_key_value_heads")
    return grouped_attention(hidden, heads, kv_heads, fields.head_dim(derived=False), qkv_bias=bias, out_bias=bias)


def _experts(fields: Fields, hidden: int) -> MoeFfn:
    return moe_ffn(
        hidden,
        fields.count("n_routed_experts"),
        fields.count("num_experts_per_tok"),
        fields.count("moe_intermediate_size"),
        gated=False,
        shared_intermediate=fields.amount("n_shared_experts") * fields.amount("moe_shared_expert_intermediate_size"),
        router_bias=True,
    )


def nemotron_nas(fields: Fields) -> Layers:
    """A searched Llama: each block of ``block_configs`` has its own heads and width, or none (Super-49B)."""
    blocks = fields.per_layer("block_configs", fields.count("num_hidden_layers"))
    if blocks is None:
        raise fields.missing("block_configs")
    return tuple(_block(block, fields) for block in blocks)


def _block(block: Any, fields: Fields) -> Layer:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    try:
        attention, ffn = block["attention"], block["ffn"]
        _refuse(fields, attention, ffn)
        grouped = dense = None
        if not attention.get("no_op"):
            grouped = grouped_attention(hidden, heads, heads // attention["n_heads_in_group"], fields.head_dim())
        if not ffn.get("no_op"):
            dense = dense_ffn(hidden, _width(ffn["ffn_mult"], hidden))
    except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
        wanted = "a block with attention.n_heads_in_group and ffn.ffn_mult, or no_op"
        raise fields.wrong("block_configs", block, wanted) from error
    return Layer(attention=grouped, ffn=dense, norm_parameters=hidden * ((grouped is not None) + (dense is not None)))


def _refuse(fields: Fields, attention: dict[str, Any], ffn: dict[str, Any]) -> None:
    for name in ("replace_with_linear", "window_length", "sparsify", "num_sink_tokens"):
        if attention.get(name) or ffn.get(name):
            raise UnsupportedModel(
                f"{fields.name}: block_configs with {name} are not built yet", "use a model whose blocks have none"
            )


def _width(multiple: float, hidden: int) -> int:
    """Two thirds of 2 x multiple x hidden, rounded up, as the model's own code does."""
    return -(-int(2 * multiple * hidden / 3) // ROUNDED_TO) * ROUNDED_TO
