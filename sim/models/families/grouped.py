"""Decoders of grouped-query attention and a dense or routed feed-forward block: Llama and all that depart from it."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.blocks import dense_ffn, grouped_attention
from sim.models.families.experts import feed_forwards
from sim.models.families.stack import Family, Layers, stack
from sim.models.families.windows import layer_windows
from sim.models.fields import Fields
from sim.models.spec import Attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How an architecture departs from Llama."""

    norms: int = 2
    """Norms per layer, each as wide as the model."""
    derived_head_dim: bool = True
    """A config without ``head_dim`` means hidden / heads; False: it means something else, so it must be there."""
    derived_kv_heads: bool = False
    """A config without ``num_key_value_heads`` means one per query head."""
    qkv_bias: bool | None = None
    """Whatever the config says; None: as its ``attention_bias`` does."""
    out_bias: bool | None = None
    head_norms: bool = False
    head_norms_if_asked: bool = False
    """Q and K are normalised per head where the config has ``use_qk_norm``."""
    each_head_norms_if_asked: bool = False
    """As before, with weights of its own for every head (Command R+)."""
    full_norms: bool = False
    sinks: bool = False
    full_every: int | None = None
    window_off_by_default: bool = False


def dense(traits: Traits = Traits()) -> Family:
    """Every layer has a dense, gated feed-forward block."""

    def build(fields: Fields) -> Layers:
        hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
        ffn = dense_ffn(hidden, fields.count("intermediate_size"), bias=fields.flag("mlp_bias"))
        return stack(_attentions(fields, depth, traits), [ffn] * depth, hidden * traits.norms)

    return build


def moe(
    traits: Traits = Traits(),
    *,
    width_is_intermediate: bool = False,
    expert_bias: bool = False,
    shared_gate: bool = False,
    router_bias: bool = False,
) -> Family:
    """As ``dense``, with routed experts in most layers."""

    def build(fields: Fields) -> Layers:
        hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
        ffns = feed_forwards(
            fields,
            depth,
            width_is_intermediate=width_is_intermediate,
            expert_bias=expert_bias,
            shared_gate=shared_gate,
            router_bias=router_bias,
        )
        return stack(_attentions(fields, depth, traits), ffns, hidden * traits.norms)

    return build


def _attentions(fields: Fields, depth: int, traits: Traits) -> list[Attention]:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads if traits.derived_kv_heads else None)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", kv_heads, f"a divisor of the {heads} query heads")
    head_dim = fields.head_dim(derived=traits.derived_head_dim)
    bias = fields.flag("attention_bias")
    windows = layer_windows(fields, depth, full_every=traits.full_every, off_by_default=traits.window_off_by_default)
    return [
        grouped_attention(
            hidden,
            heads,
            kv_heads,
            head_dim,
            window=window,
            qkv_bias=bias if traits.qkv_bias is None else traits.qkv_bias,
            out_bias=bias if traits.out_bias is None else traits.out_bias,
            head_norms=traits.head_norms or (traits.head_norms_if_asked and fields.flag("use_qk_norm")),
            each_head_norms=traits.each_head_norms_if_asked and fields.flag("use_qk_norm"),
            full_norms=traits.full_norms and fields.flag("use_qk_norm", default=True),
            sinks=traits.sinks,
        )
        for window in windows
    ]
