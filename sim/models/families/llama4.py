"""Llama 4: chunked attention in three layers of four, experts with a shared one beside them."""

from __future__ import annotations

from sim.models.blocks import dense_ffn, grouped_attention, moe_ffn
from sim.models.families.stack import Layers, stack
from sim.models.families.windows import GLOBAL, LOCAL, shorter
from sim.models.fields import Fields

GLOBAL_EVERY = 4
"""Every fourth layer has no positions and sees all, unless the config lists them (``no_rope_layers``)."""


def llama4(fields: Fields) -> Layers:
    """``interleave_moe_layer_step`` 1: every layer routes; 2: every other. A chunk counts as a window of its length."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    chunk = shorter(fields.count("attention_chunk_size"), fields)
    bias = fields.flag("attention_bias")
    attentions = [
        grouped_attention(
            hidden,
            fields.count("num_attention_heads"),
            fields.count("num_key_value_heads"),
            fields.head_dim(),
            window=chunk if local else None,
            qkv_bias=bias,
            out_bias=bias,
        )
        for local in _chunked(fields, depth)
    ]
    width, step = fields.count("intermediate_size"), fields.count("interleave_moe_layer_step")
    experts, per_token = fields.count("num_local_experts"), fields.count("num_experts_per_tok")
    routed = moe_ffn(hidden, experts, per_token, width, shared_intermediate=width)
    plain = dense_ffn(hidden, fields.count("intermediate_size_mlp"))
    return stack(attentions, [routed if (index + 1) % step == 0 else plain for index in range(depth)], 2 * hidden)


def _chunked(fields: Fields, depth: int) -> list[bool]:
    kinds = fields.words("layer_types", depth, (*LOCAL, GLOBAL))
    if kinds is not None:
        return [kind in LOCAL for kind in kinds]
    flags = fields.per_layer("no_rope_layers", depth) if fields.get("no_rope_layers") else None
    if flags is not None:
        return [bool(flag) for flag in flags]
    return [(index + 1) % GLOBAL_EVERY != 0 for index in range(depth)]
