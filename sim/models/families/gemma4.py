"""Gemma 4: sliding layers and global ones with heads of their own, a dense block beside the experts."""

from __future__ import annotations

from sim.errors import UnsupportedModel
from sim.models.blocks import dense_ffn, grouped_attention, moe_ffn
from sim.models.families.stack import Layers, stack
from sim.models.families.windows import local_layers, shorter
from sim.models.fields import Fields
from sim.models.spec import Attention

FULL_EVERY = 6
DENSE_NORMS, MOE_NORMS = 4, 7
LAYER_SCALAR = 1


def gemma4(fields: Fields) -> Layers:
    """With ``attention_k_eq_v`` global layers have no value projection: values are the keys before their norm."""
    _refuse(fields)
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    attentions = _attentions(fields, depth)
    width = fields.count("intermediate_size")
    if not fields.flag("enable_moe_block"):
        return stack(attentions, [dense_ffn(hidden, width)] * depth, DENSE_NORMS * hidden + LAYER_SCALAR)
    experts = fields.count("num_experts")
    block = moe_ffn(
        hidden,
        experts,
        fields.count("top_k_experts", "num_experts_per_tok"),
        fields.count("moe_intermediate_size", "expert_intermediate_size"),
        shared_intermediate=width,
        router_extra=hidden + experts,
    )
    return stack(attentions, [block] * depth, MOE_NORMS * hidden + LAYER_SCALAR)


def _attentions(fields: Fields, depth: int) -> list[Attention]:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    keys_are_values = fields.flag("attention_k_eq_v")
    full = grouped_attention(
        hidden,
        heads,
        fields.count("num_global_key_value_heads" if keys_are_values else "num_key_value_heads"),
        fields.count("global_head_dim"),
        head_norms=True,
        value_is_key=keys_are_values,
    )
    sliding = grouped_attention(
        hidden,
        heads,
        fields.count("num_key_value_heads"),
        fields.head_dim(derived=False),
        window=shorter(fields.count("sliding_window"), fields),
        head_norms=True,
    )
    return [sliding if local else full for local in local_layers(fields, depth, FULL_EVERY)]


def _refuse(fields: Fields) -> None:
    for name, what in {
        "hidden_size_per_layer_input": "embeddings of their own per layer",
        "num_kv_shared_layers": "layers that share keys and values",
    }.items():
        if fields.amount(name):
            raise UnsupportedModel(
                f"{fields.name}: {name} {fields.get(name)}: {what} are not built yet",
                "use a Gemma 4 without them (26B-A4B, 31B)",
            )
