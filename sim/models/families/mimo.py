"""MiMo-V2: full and sliding layers with different heads, and values narrower than keys."""

from __future__ import annotations

from sim.models.blocks import grouped_attention
from sim.models.families.experts import feed_forwards
from sim.models.families.stack import Layers, stack
from sim.models.families.windows import shorter
from sim.models.fields import Fields


def mimo_v2(fields: Fields) -> Layers:
    """``hybrid_layer_pattern`` marks the sliding layers with 1; ``moe_layer_freq`` lists the routed ones."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    bias = fields.flag("attention_bias")
    full = grouped_attention(
        hidden,
        fields.count("num_attention_heads"),
        fields.count("num_key_value_heads"),
        fields.head_dim(derived=False),
        value_head_dim=fields.count("v_head_dim"),
        sinks=fields.flag("add_full_attention_sink_bias"),
        qkv_bias=bias,
    )
    sliding = grouped_attention(
        hidden,
        fields.count("swa_num_attention_heads"),
        fields.count("swa_num_key_value_heads"),
        fields.count("swa_head_dim"),
        value_head_dim=fields.count("swa_v_head_dim"),
        window=shorter(fields.count("sliding_window", "sliding_window_size"), fields),
        sinks=fields.flag("add_swa_attention_sink_bias"),
        qkv_bias=bias,
    )
    pattern = fields.per_layer("hybrid_layer_pattern", depth)
    if pattern is None:
        raise fields.missing("hybrid_layer_pattern")
    return stack(
        [sliding if kind else full for kind in pattern], feed_forwards(fields, depth, router_bias=True), 2 * hidden
    )
