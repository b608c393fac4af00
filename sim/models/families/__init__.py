"""From a config's fields to layers: one builder per way of making a decoder, by ``model_type``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sim.models.families.delta import hybrid_delta
from sim.models.families.gemma4 import gemma4
from sim.models.families.grouped import Traits, dense, moe
from sim.models.families.latent import latent
from sim.models.families.llama4 import llama4
from sim.models.families.mimo import mimo_v2
from sim.models.families.nemotron import nemotron_h, nemotron_nas
from sim.models.families.stack import Family

LLAMA = Traits(derived_kv_heads=True)
COHERE = Traits(derived_kv_heads=True, norms=1, each_head_norms_if_asked=True)
QWEN2 = Traits(qkv_bias=True, out_bias=False, window_off_by_default=True)
QWEN3 = Traits(derived_head_dim=False, head_norms=True, window_off_by_default=True)
GEMMA2 = Traits(derived_head_dim=False, norms=4, full_every=2)
GEMMA3 = Traits(derived_head_dim=False, norms=4, full_every=6, head_norms=True)
GPT_OSS = Traits(derived_head_dim=False, sinks=True, full_every=2)
GLM4 = Traits(derived_head_dim=False, out_bias=False, head_norms_if_asked=True)
MINIMAX = Traits(derived_head_dim=False, full_norms=True)

FAMILIES: dict[str, Family] = {
    "llama": dense(LLAMA),
    "mistral": dense(),
    "phi3": dense(LLAMA),
    "granite": dense(LLAMA),
    "cohere": dense(COHERE),
    "cohere2": dense(replace(COHERE, full_every=4)),
    "qwen2": dense(QWEN2),
    "qwen2_vl": dense(QWEN2),
    "qwen2_vl_text": dense(QWEN2),
    "qwen2_5_vl": dense(QWEN2),
    "qwen2_5_vl_text": dense(QWEN2),
    "qwen3": dense(QWEN3),
    "qwen3_vl_text": dense(QWEN3),
    "gemma2": dense(GEMMA2),
    "gemma3": dense(GEMMA3),
    "gemma3_text": dense(GEMMA3),
    "mixtral": moe(width_is_intermediate=True),
    "qwen2_moe": moe(QWEN2, shared_gate=True),
    "qwen3_moe": moe(QWEN3),
    "qwen3_vl_moe_text": moe(QWEN3),
    "gpt_oss": moe(GPT_OSS, width_is_intermediate=True, expert_bias=True, router_bias=True),
    "glm4_moe": moe(GLM4, router_bias=True),
    "minimax_m2": moe(MINIMAX, width_is_intermediate=True, router_bias=True),
    "deepseek_v2": latent,
    "deepseek_v3": latent,
    "deepseek_v32": latent,
    "kimi_k2": latent,
    "glm_moe_dsa": latent,
    "qwen3_next": hybrid_delta,
    "qwen3_5": hybrid_delta,
    "qwen3_5_text": hybrid_delta,
    "qwen3_5_moe": hybrid_delta,
    "qwen3_5_moe_text": hybrid_delta,
    "llama4": llama4,
    "llama4_text": llama4,
    "gemma4": gemma4,
    "gemma4_text": gemma4,
    "mimo_v2_flash": mimo_v2,
    "nemotron_h": nemotron_h,
    "nemotron-nas": nemotron_nas,
}
TIED_BY_DEFAULT = {"gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "cohere", "cohere2"}
"""Architectures whose embedding tables are one unless the config says otherwise."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
}
"""Values of transformers' config classes that published configs rely on by leaving the field out."""
DEFAULTS["gemma3"] = DEFAULTS["gemma3_text"]
