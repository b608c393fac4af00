"""Which tensors a checkpoint stores in which dtype, from its quantization_config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any, get_args

from sim.errors import UnsupportedModel
from sim.models.spec import DType, ModelSpec, WeightFormat

TORCH_DTYPES: dict[str, DType] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
MODULES = {
    "attention": "model.layers.{}.self_attn.q_proj",
    "dense_ffn": "model.layers.{}.mlp.gate_proj",
    "experts": "model.layers.{}.mlp.experts.0.gate_proj",
    "shared_experts": "model.layers.{}.mlp.shared_experts.gate_proj",
    "lm_head": "lm_head",
}
"""A module that stands for each kind of tensor, in a middle layer."""


def plain(dtype: DType) -> WeightFormat:
    """Everything in one dtype."""
    return WeightFormat(
        attention=dtype,
        dense_ffn=dtype,
        experts=dtype,
        shared_experts=dtype,
        router=dtype,
        embedding=dtype,
        lm_head=dtype,
        norms=dtype,
    )


def weight_format(config: Mapping[str, Any] | None, activation: DType, layers: int, name: str) -> WeightFormat:
    """The checkpoint's format. Raises UnsupportedModel for a method that is not known."""
    base = plain(activation)
    if not config:
        return base
    dtype, block = _dtype(config, name)
    kept = _kept(config)
    quantized: dict[str, Any] = {
        kind: dtype
        for kind, module in MODULES.items()
        if not any(_matches(pattern, module.format(layers // 2)) for pattern in kept)
    }
    if not _quantizes_head(config):
        quantized.pop("lm_head", None)
    return replace(base, **quantized, scale_block=block)


def with_weight_dtype(spec: ModelSpec, dtype: str) -> ModelSpec:
    """The model with its linear layers in another dtype; router, embeddings, head and norms stay in 16 bits."""
    if dtype not in get_args(DType):
        raise UnsupportedModel(f"weight dtype {dtype} is not known", f"use one of {', '.join(get_args(DType))}")
    if dtype in TORCH_DTYPES.values():
        return replace(spec, weights=plain(dtype), activation_dtype=dtype)  # type: ignore[arg-type]
    weights = replace(
        plain(spec.activation_dtype),
        attention=dtype,
        dense_ffn=dtype,
        experts=dtype,
        shared_experts=dtype,
    )
    return replace(spec, weights=weights)


def _dtype(config: Mapping[str, Any], name: str) -> tuple[DType, int | None]:
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    algorithm = str(config.get("quant_algo") or "").lower()
    if method == "fp8":
        block = config.get("weight_block_size")
        return "fp8", int(block[0]) if block else None
    if method in {"awq", "gptq"} and config.get("bits") == 4:
        return "int4", config.get("group_size")
    if method in {"awq", "gptq"} and config.get("bits") == 8:
        return "int8", None
    if method == "mxfp4":
        return "mxfp4", None
    if method == "modelopt" or algorithm:
        if "nvfp4" in algorithm or "fp4" in algorithm:
            return "nvfp4", None
        if "fp8" in algorithm:
            return "fp8", None
    groups = config.get("config_groups") or {}
    weights = next((group.get("weights") for group in groups.values() if group.get("weights")), None)
    if weights:
        kind, bits = str(weights.get("type", "int")), weights.get("num_bits")
        group = weights.get("group_size")
        if kind == "float" and bits == 4:
            return ("mxfp4" if group == 32 else "nvfp4"), None
        if kind == "float" and bits == 8:
            return "fp8", None
        if kind == "int" and bits == 4:
            return "int4", group
        if kind == "int" and bits == 8:
            return "int8", None
    raise UnsupportedModel(
        f"{name}: quantization_config {method or 'without quant_method'} is not one that can be read",
        "set engine.weight_dtype, and remove quantization_config",
    )


def _kept(config: Mapping[str, Any]) -> list[str]:
    """Patterns of modules that stay in 16 bits."""
    return [str(pattern) for key in ("modules_to_not_convert", "ignore", "exclude_modules") for pattern in config.get(key) or []]


def _quantizes_head(config: Mapping[str, Any]) -> bool:
    return bool(config.get("lm_head") or config.get("quantize_lm_head"))


def _matches(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    if "*" in pattern:
        return fnmatch(module, pattern) or fnmatch(module, pattern + ".*")
    return f".{pattern}." in f".{module}."
