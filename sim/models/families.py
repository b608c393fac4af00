"""From a config's fields to layers: one function per way of building a decoder, and which architecture uses which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.errors import UnsupportedModel
from sim.models.blocks import (
    dense_ffn,
    gated_delta_net,
    grouped_attention,
    latent_attention,
    mamba2,
    moe_ffn,
)
from sim.models.fields import Fields
from sim.models.spec import Attention, DenseFfn, Layer, MoeFfn

Layers = tuple[Layer, ...]


def window_of(fields: Fields) -> int | None:
    """A sliding window that really slides: not switched off, not longer than the model."""
    window = fields.get("sliding_window")
    longest = fields.get("max_position_embeddings")
    if window is None or not fields.get("use_sliding_window", default=True):
        return None
    return None if longest is not None and window >= longest else int(window)


def sliding_layers(fields: Fields, depth: int, every: int | None) -> list[bool]:
    """Which layers slide: as ``layer_types`` says, else all but every ``every``-th."""
    types = fields.get("layer_types")
    if types is not None:
        return [kind in {"sliding_attention", "chunked_attention"} for kind in types[:depth]]
    pattern = fields.get("sliding_window_pattern", "_sliding_window_pattern", default=every)
    return [pattern is not None and (index + 1) % pattern != 0 for index in range(depth)]


def dense(fields: Fields, **traits: Any) -> Layers:
    """Grouped-query attention and a gated feed-forward block; ``traits`` say how an architecture departs from Llama."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    attentions = _grouped(fields, depth, traits)
    bias = fields.flag("mlp_bias")
    ffn = dense_ffn(hidden, fields.count("intermediate_size"), bias=bias)
    return _stack(attentions, [ffn] * depth, hidden * traits.get("norms", 2))


def moe(fields: Fields, **traits: Any) -> Layers:
    """As ``dense``, with routed experts in most layers."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    attentions = _grouped(fields, depth, traits)
    return _stack(attentions, _ffns(fields, depth, traits), hidden * traits.get("norms", 2))


def _grouped(fields: Fields, depth: int, traits: dict[str, Any]) -> list[Attention]:
    heads = fields.count("num_attention_heads")
    window = window_of(fields)
    slides = sliding_layers(fields, depth, traits.get("full_every"))
    uniform = fields.get("layer_types") is None and traits.get("full_every") is None
    bias = fields.flag("attention_bias")
    norms = traits.get("head_norms", False)
    return [
        grouped_attention(
            fields.count("hidden_size"),
            heads,
            fields.get("num_key_value_heads", default=heads),
            fields.head_dim,
            window=window if uniform or slides[index] else None,
            qkv_bias=traits.get("qkv_bias", bias),
            out_bias=traits.get("out_bias", bias),
            head_norms=fields.flag("use_qk_norm") if norms == "flag" else norms,
            full_norms=traits.get("full_norms", False) and fields.flag("use_qk_norm", default=True),
            sinks=traits.get("sinks", False),
        )
        for index in range(depth)
    ]


def _ffns(fields: Fields, depth: int, traits: dict[str, Any]) -> list[DenseFfn | MoeFfn]:
    hidden = fields.count("hidden_size")
    width = fields.count("moe_intermediate_size", *(["intermediate_size"] if traits.get("width_is_intermediate") else []))
    shared = fields.get("n_shared_experts", default=0) * width or fields.get("shared_expert_intermediate_size", default=0)
    block = moe_ffn(
        hidden,
        fields.count("num_experts", "num_local_experts", "n_routed_experts"),
        fields.count("num_experts_per_tok", "experts_per_token", "top_k_experts"),
        width,
        bias=traits.get("expert_bias", False),
        shared_intermediate=shared,
        shared_gate=traits.get("shared_gate", False),
        router_bias=traits.get("router_bias", False),
    )
    is_moe = _moe_layers(fields, depth)
    dense_width = None if all(is_moe) else fields.count("intermediate_size")
    return [block if routed or dense_width is None else dense_ffn(hidden, dense_width) for routed in is_moe]


def _moe_layers(fields: Fields, depth: int) -> list[bool]:
    """Every way configs say which layers route."""
    frequency = fields.get("moe_layer_freq", default=1)
    if isinstance(frequency, list):
        return [bool(flag) for flag in frequency]
    first = fields.get("first_k_dense_replace", default=0)
    step = fields.get("decoder_sparse_step", default=frequency)
    never = set(fields.get("mlp_only_layers", default=[]))
    offset = 1 if fields.get("decoder_sparse_step") else 0
    return [index >= first and index not in never and (index + offset) % step == 0 for index in range(depth)]


def latent(fields: Fields) -> Layers:
    """DeepSeek's MLA with shared and routed experts; with an indexer where the config has one."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    indexed = fields.get("index_n_heads") is not None
    attention = latent_attention(
        hidden,
        fields.count("num_attention_heads"),
        fields.get("q_lora_rank"),
        fields.count("kv_lora_rank"),
        fields.count("qk_rope_head_dim"),
        fields.count("qk_nope_head_dim"),
        fields.count("v_head_dim"),
        bias=fields.flag("attention_bias"),
        index_heads=fields.count("index_n_heads") if indexed else 0,
        index_head_dim=fields.count("index_head_dim") if indexed else 0,
        index_topk=fields.count("index_topk") if indexed else None,
    )
    router_bias = fields.get("topk_method") == "noaux_tc"
    return _stack([attention] * depth, _ffns(fields, depth, {"router_bias": router_bias}), 2 * hidden)


def hybrid_delta(fields: Fields) -> Layers:
    """Qwen3-Next and Qwen3.5: gated delta nets with a full, output-gated attention every few layers."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    linear = gated_delta_net(
        hidden,
        fields.count("linear_num_key_heads"),
        fields.count("linear_num_value_heads"),
        fields.count("linear_key_head_dim"),
        fields.count("linear_value_head_dim"),
        fields.count("linear_conv_kernel_dim"),
    )
    full = grouped_attention(
        hidden,
        fields.count("num_attention_heads"),
        fields.count("num_key_value_heads"),
        fields.head_dim,
        head_norms=True,
        output_gate=fields.flag("attn_output_gate", default=True),
        qkv_bias=fields.flag("attention_bias"),
        out_bias=fields.flag("attention_bias"),
    )
    types = fields.get("layer_types")
    interval = fields.get("full_attention_interval", default=4)
    attentions = [
        full if (types[index] == "full_attention" if types else (index + 1) % interval == 0) else linear
        for index in range(depth)
    ]
    if fields.get("num_experts"):
        ffns = _ffns(fields, depth, {"shared_gate": True})
    else:
        ffns = [dense_ffn(hidden, fields.count("intermediate_size"))] * depth
    return _stack(attentions, ffns, 2 * hidden)


def llama4(fields: Fields) -> Layers:
    """Chunked attention in three layers of four; MoE every ``interleave_moe_layer_step`` with a shared expert."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    types, flags = fields.get("layer_types"), fields.get("no_rope_layers")
    chunked = [
        types[index] == "chunked_attention" if types else bool(flags[index]) if flags else (index + 1) % 4 != 0
        for index in range(depth)
    ]
    attentions = [
        grouped_attention(
            hidden,
            fields.count("num_attention_heads"),
            fields.count("num_key_value_heads"),
            fields.head_dim,
            window=fields.count("attention_chunk_size") if local else None,
            qkv_bias=fields.flag("attention_bias"),
            out_bias=fields.flag("attention_bias"),
        )
        for local in chunked
    ]
    width, step = fields.count("intermediate_size"), fields.count("interleave_moe_layer_step")
    routed = moe_ffn(
        hidden,
        fields.count("num_local_experts"),
        fields.count("num_experts_per_tok"),
        width,
        shared_intermediate=width,
    )
    plain = dense_ffn(hidden, fields.count("intermediate_size_mlp"))
    return _stack(attentions, [routed if (index + 1) % step == 0 else plain for index in range(depth)], 2 * hidden)


def gemma4(fields: Fields) -> Layers:
    """Sliding layers and global ones with their own heads; a dense block beside the experts."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    if fields.get("hidden_size_per_layer_input"):
        raise UnsupportedModel(f"{fields.name}: per-layer embeddings are not built yet", "use a Gemma 4 without them")
    heads = fields.count("num_attention_heads")
    shares_value = fields.flag("attention_k_eq_v")
    sliding = grouped_attention(
        hidden, heads, fields.count("num_key_value_heads"), fields.head_dim, window=window_of(fields), head_norms=True
    )
    full = grouped_attention(
        hidden,
        heads,
        fields.count("num_global_key_value_heads" if shares_value else "num_key_value_heads"),
        fields.count("global_head_dim"),
        head_norms=True,
        value_is_key=shares_value,
    )
    attentions = [sliding if slides else full for slides in sliding_layers(fields, depth, 6)]
    width = fields.count("intermediate_size")
    if not fields.flag("enable_moe_block"):
        return _stack(attentions, [dense_ffn(hidden, width)] * depth, 4 * hidden + 1)
    experts = fields.count("num_experts")
    block = moe_ffn(
        hidden,
        experts,
        fields.count("top_k_experts"),
        fields.count("moe_intermediate_size", "expert_intermediate_size"),
        shared_intermediate=width,
        router_extra=hidden + experts,
    )
    return _stack(attentions, [block] * depth, 7 * hidden + 1)


def mimo_v2(fields: Fields) -> Layers:
    """Full and sliding layers with different heads, and values narrower than keys."""
    hidden, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    full = grouped_attention(
        hidden,
        fields.count("num_attention_heads"),
        fields.count("num_key_value_heads"),
        fields.head_dim,
        value_head_dim=fields.count("v_head_dim"),
        sinks=fields.flag("add_full_attention_sink_bias"),
    )
    sliding = grouped_attention(
        hidden,
        fields.count("swa_num_attention_heads"),
        fields.count("swa_num_key_value_heads"),
        fields.count("swa_head_dim"),
        value_head_dim=fields.count("swa_v_head_dim"),
        window=fields.count("sliding_window"),
        sinks=fields.flag("add_swa_attention_sink_bias"),
    )
    pattern = fields.get("hybrid_layer_pattern")
    if pattern is None or len(pattern) != depth:
        raise UnsupportedModel(f"{fields.name}: states no hybrid_layer_pattern of {depth} layers", "use its full config")
    return _stack([sliding if kind else full for kind in pattern], _ffns(fields, depth, {"router_bias": True}), 2 * hidden)


def nemotron_h(fields: Fields) -> Layers:
    """One mixer per layer, as ``hybrid_override_pattern`` spells: M Mamba-2, * attention, - MLP, E experts."""
    hidden = fields.count("hidden_size")
    pattern = str(fields.get("hybrid_override_pattern", default=""))
    if len(pattern) != fields.count("num_hidden_layers") or set(pattern) - set("M*-E"):
        raise UnsupportedModel(f"{fields.name}: hybrid_override_pattern does not name its layers", "use its full config")
    bias = fields.flag("use_bias")
    mixers: dict[str, Layer] = {}
    for kind in sorted(set(pattern)):
        attention: Any = None
        ffn: DenseFfn | MoeFfn | None = None
        if kind == "M":
            attention = mamba2(
                hidden,
                fields.count("mamba_num_heads"),
                fields.count("mamba_head_dim"),
                fields.count("n_groups"),
                fields.count("ssm_state_size"),
                fields.count("conv_kernel"),
                conv_bias=fields.flag("use_conv_bias", default=True),
                bias=bias or fields.flag("mamba_proj_bias"),
            )
        elif kind == "*":
            attention = grouped_attention(
                hidden,
                fields.count("num_attention_heads"),
                fields.count("num_key_value_heads"),
                fields.head_dim,
                qkv_bias=fields.flag("attention_bias"),
                out_bias=fields.flag("attention_bias"),
            )
        elif kind == "-":
            ffn = dense_ffn(hidden, fields.count("intermediate_size"), gated=False, bias=fields.flag("mlp_bias"))
        else:
            ffn = moe_ffn(
                hidden,
                fields.count("n_routed_experts"),
                fields.count("num_experts_per_tok"),
                fields.count("moe_intermediate_size"),
                gated=False,
                shared_intermediate=fields.get("n_shared_experts", default=0)
                * fields.get("moe_shared_expert_intermediate_size", default=0),
                router_bias=True,
            )
        mixers[kind] = Layer(attention=attention, ffn=ffn, norm_parameters=hidden)
    return tuple(mixers[kind] for kind in pattern)


def nemotron_nas(fields: Fields) -> Layers:
    """A searched Llama: each block of ``block_configs`` has its own heads and width, or none (Super-49B)."""
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    blocks = fields.get("block_configs")
    if not blocks:
        raise UnsupportedModel(f"{fields.name}: states no block_configs", "use its full config")
    layers = []
    for block in blocks:
        attention, ffn = block["attention"], block["ffn"]
        if attention.get("replace_with_linear") or ffn.get("replace_with_linear"):
            raise UnsupportedModel(f"{fields.name}: blocks replaced by a linear layer are not built yet", "use another model")
        grouped = None
        if not attention.get("no_op"):
            grouped = grouped_attention(hidden, heads, heads // attention["n_heads_in_group"], fields.head_dim)
        width = None if ffn.get("no_op") else _nas_width(ffn["ffn_mult"], hidden)
        norms = hidden * ((grouped is not None) + (width is not None))
        layers.append(Layer(attention=grouped, ffn=dense_ffn(hidden, width) if width else None, norm_parameters=norms))
    return tuple(layers)


def _nas_width(multiple: float, hidden: int) -> int:
    """Two thirds of multiple x hidden x 2, rounded up to a multiple of 256, as the model's own code does."""
    width = int(2 * multiple * hidden / 3)
    return -(-width // 256) * 256


def _stack(attentions: list[Any], ffns: list[Any], norm_parameters: int) -> Layers:
    pairs = zip(attentions, ffns, strict=True)
    return tuple(Layer(attention=attention, ffn=ffn, norm_parameters=norm_parameters) for attention, ffn in pairs)


def _with(build: Callable[..., Layers], **traits: Any) -> Callable[[Fields], Layers]:
    return lambda fields: build(fields, **traits)


FAMILIES: dict[str, Callable[[Fields], Layers]] = {
    "llama": _with(dense),
    "mistral": _with(dense),
    "phi3": _with(dense),
    "qwen2": _with(dense, qkv_bias=True, out_bias=False),
    "qwen3": _with(dense, head_norms=True),
    "gemma2": _with(dense, norms=4, full_every=2),
    "gemma3_text": _with(dense, norms=4, full_every=6, head_norms=True),
    "gemma3": _with(dense, norms=4, full_every=6, head_norms=True),
    "cohere": _with(dense, norms=1),
    "mixtral": _with(moe, width_is_intermediate=True),
    "qwen2_moe": _with(moe, qkv_bias=True, out_bias=False, shared_gate=True),
    "qwen3_moe": _with(moe, head_norms=True),
    "gpt_oss": _with(moe, width_is_intermediate=True, sinks=True, expert_bias=True, router_bias=True, full_every=2),
    "glm4_moe": _with(moe, router_bias=True, head_norms="flag", out_bias=False),
    "minimax_m2": _with(moe, width_is_intermediate=True, full_norms=True, router_bias=True),
    "deepseek_v2": latent,
    "deepseek_v3": latent,
    "deepseek_v32": latent,
    "kimi_k2": latent,
    "glm_moe_dsa": latent,
    "qwen3_next": hybrid_delta,
    "qwen3_5_text": hybrid_delta,
    "qwen3_5_moe_text": hybrid_delta,
    "qwen3_5": hybrid_delta,
    "qwen3_5_moe": hybrid_delta,
    "llama4_text": llama4,
    "llama4": llama4,
    "gemma4_text": gemma4,
    "gemma4": gemma4,
    "mimo_v2_flash": mimo_v2,
    "nemotron_h": nemotron_h,
    "nemotron-nas": nemotron_nas,
}
"""By ``model_type``."""
TIED_BY_DEFAULT = {"gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "cohere"}
"""Architectures whose embedding tables are one unless the config says otherwise."""
