"""DeepSeek's decoders: latent attention, shared and routed experts, a sparse indexer in the later ones."""

from __future__ import annotations

from sim.models.blocks import latent_attention
from sim.models.families.experts import feed_forwards
from sim.models.families.stack import Layers, stack
from sim.models.fields import Fields
from sim.models.spec import LatentAttention


def latent(fields: Fields) -> Layers:
    """MLA in every layer (``num_key_value_heads`` and ``head_dim`` mean nothing); experts after a few dense layers."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    indexed, shared = _attention(fields, indexed=True), _attention(fields, indexed=False)
    attentions = [indexed if runs else shared for runs in index_layers(fields, depth)]
    router_bias = fields.get("topk_method") == "noaux_tc"
    return stack(attentions, feed_forwards(fields, depth, router_bias=router_bias), 2 * hidden)


def index_layers(fields: Fields, depth: int) -> list[bool]:
    """Layers that run an indexer of their own; the others attend to what the last of these found (arXiv 2603.12201)."""
    if fields.get("index_topk") is None:
        return [False] * depth
    kinds = fields.words("indexer_types", depth, ("full", "shared"))
    if kinds is not None:
        return [kind == "full" for kind in kinds]
    step = fields.count("index_topk_freq", default=1)
    offset = fields.amount("index_skip_topk_offset") if step > 1 else 0
    return [max(index - offset + 1, 0) % step == 0 for index in range(depth)]


def _attention(fields: Fields, *, indexed: bool) -> LatentAttention:
    sparse = fields.get("index_topk") is not None
    return latent_attention(
        fields.count("hidden_size"),
        fields.count("num_attention_heads"),
        fields.optional("q_lora_rank"),
        fields.count("kv_lora_rank"),
        fields.count("qk_rope_head_dim"),
        fields.count("qk_nope_head_dim"),
        fields.count("v_head_dim"),
        bias=fields.flag("attention_bias"),
        index_heads=fields.count("index_n_heads") if indexed and sparse else 0,
        index_head_dim=fields.count("index_head_dim") if indexed and sparse else 0,
        index_topk=fields.count("index_topk") if sparse else None,
    )
