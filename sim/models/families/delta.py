"""Qwen3-Next and Qwen3.5: gated delta nets, and a full, output-gated attention every few layers."""

from __future__ import annotations

from sim.models.blocks import dense_ffn, gated_delta_net, grouped_attention
from sim.models.families.experts import EXPERTS, feed_forwards
from sim.models.families.stack import Layers, stack
from sim.models.families.windows import GLOBAL
from sim.models.fields import Fields
from sim.models.spec import DenseFfn, MoeFfn

LINEAR = "linear_attention"


def hybrid_delta(fields: Fields) -> Layers:
    """``layer_types`` or ``full_attention_interval`` says which layers keep keys and values."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    linear = gated_delta_net(
        hidden,
        fields.count("linear_num_key_heads"),
        fields.count("linear_num_value_heads"),
        fields.count("linear_key_head_dim"),
        fields.count("linear_value_head_dim"),
        fields.count("linear_conv_kernel_dim"),
    )
    bias = fields.flag("attention_bias")
    full = grouped_attention(
        hidden,
        fields.count("num_attention_heads"),
        fields.count("num_key_value_heads"),
        fields.head_dim(derived=False),
        head_norms=True,
        output_gate=fields.flag("attn_output_gate", default=True),
        qkv_bias=bias,
        out_bias=bias,
    )
    ffns: list[DenseFfn | MoeFfn]
    if fields.get(*EXPERTS) is not None:
        ffns = feed_forwards(fields, depth, shared_gate=True)
    else:
        ffns = [dense_ffn(hidden, fields.count("intermediate_size"))] * depth
    return stack([full if keeps else linear for keeps in _full_layers(fields, depth)], ffns, 2 * hidden)


def _full_layers(fields: Fields, depth: int) -> list[bool]:
    kinds = fields.words("layer_types", depth, (GLOBAL, LINEAR))
    if kinds is None:
        interval = fields.count("full_attention_interval")
        return [(index + 1) % interval == 0 for index in range(depth)]
    return [kind == GLOBAL for kind in kinds]
