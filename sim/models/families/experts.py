"""Which layers route and to what, in every way configs say so."""

from __future__ import annotations

from sim.models.blocks import dense_ffn, moe_ffn
from sim.models.fields import Fields
from sim.models.spec import DenseFfn, MoeFfn

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "top_k_experts")


def feed_forwards(
    fields: Fields,
    depth: int,
    *,
    width_is_intermediate: bool = False,
    expert_bias: bool = False,
    shared_gate: bool = False,
    router_bias: bool = False,
) -> list[DenseFfn | MoeFfn]:
    """The feed-forward block of every layer.

    ``width_is_intermediate``: this architecture's ``intermediate_size`` is the width of one expert (Mixtral, gpt-oss).
    """
    hidden = fields.count("hidden_size")
    width = fields.count("moe_intermediate_size", *(["intermediate_size"] if width_is_intermediate else []))
    shared = fields.amount("n_shared_experts") * width or fields.amount("shared_expert_intermediate_size")
    block = moe_ffn(
        hidden,
        fields.count(*EXPERTS),
        fields.count(*PER_TOKEN),
        width,
        bias=expert_bias,
        shared_intermediate=shared,
        shared_gate=shared_gate,
        router_bias=router_bias,
    )
    if block.experts_per_token > block.experts:
        raise fields.wrong(PER_TOKEN[0], block.experts_per_token, f"at most the {block.experts} experts")
    routed = routed_layers(fields, depth)
    if all(routed):
        return [block] * depth
    plain = dense_ffn(hidden, fields.count("intermediate_size"))
    return [block if routes else plain for routes in routed]


def routed_layers(fields: Fields, depth: int) -> list[bool]:
    """Whether each layer routes: by a list of layers, a step, a number of leading dense layers, or exceptions."""
    kinds = fields.words("mlp_layer_types", depth, ("dense", "sparse"))
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    if isinstance(fields.get("moe_layer_freq"), list):
        return [bool(routes) for routes in fields.per_layer("moe_layer_freq", depth) or []]
    first = fields.amount("first_k_dense_replace")
    never = fields.indices("mlp_only_layers")
    if fields.get("decoder_sparse_step") is not None:
        step, offset = fields.count("decoder_sparse_step"), 1
    else:
        step, offset = fields.count("moe_layer_freq", default=1), 0
    return [index >= first and index not in never and (index + offset) % step == 0 for index in range(depth)]
