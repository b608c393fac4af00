"""Which tensors a checkpoint stores in which dtype, from its quantization_config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from sim.errors import UnsupportedModel
from sim.models.dtypes import INT4_GROUP
from sim.models.modules import Modules, module_names
from sim.models.schemes import Scheme, kept_modules, schemes_of
from sim.models.spec import DType, Layer, ModelSpec, WeightFormat

TORCH_DTYPES: dict[str, DType] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
UNQUANTIZED = ("fp32", "bf16", "fp16")


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


def with_formats(
    config: Mapping[str, Any] | None, layers: Sequence[Layer], activation: DType, name: str
) -> tuple[WeightFormat, tuple[Layer, ...]]:
    """The checkpoint's format, and the layers with theirs where a mixed checkpoint makes them differ.

    Raises UnsupportedModel for a method that is not known. What is no matrix of a layer stays in 16 bits, but for a
    head that the config names.
    """
    base = plain(activation)
    if not config:
        return base, tuple(layers)
    try:
        schemes, kept = schemes_of(config, name), Modules(kept_modules(config))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedModel(
            f"{name}: quantization_config cannot be read: {error}", "use the one of the model's own config.json"
        ) from error
    stored = _stored(layers, schemes, kept)
    common: dict[str, Any] = {}
    for kind in sorted({kind for dtypes in stored for kind in dtypes}):
        most = Counter(dtypes[kind] for dtypes in stored if kind in dtypes).most_common(1)[0][0]
        common[kind] = most or activation
    if common.get("attention_out") == common.get("attention"):
        common["attention_out"] = None
    model = replace(
        base,
        **common,
        **({"lm_head": schemes[0].dtype} if _quantizes_head(config, kept) else {}),
        scale_block=next((scheme.block for scheme in schemes if scheme.block), None),
        zero_points=any(scheme.zero_points for scheme in schemes),
    )
    return model, tuple(
        _departing(layer, dtypes, model, activation) for layer, dtypes in zip(layers, stored, strict=True)
    )


def with_weight_dtype(spec: ModelSpec, dtype: str) -> ModelSpec:
    """The model with its linear layers in another dtype; router, embeddings, head and norms stay in 16 bits."""
    if dtype not in get_args(DType):
        raise UnsupportedModel(f"weight dtype {dtype} is not known", f"use one of {', '.join(get_args(DType))}")
    wanted: DType = dtype  # type: ignore[assignment]
    layers = tuple(replace(layer, weights=None) if layer.weights is not None else layer for layer in spec.layers)
    if wanted in UNQUANTIZED:
        return replace(spec, layers=layers, weights=plain(wanted), activation_dtype=wanted)
    base = plain(spec.activation_dtype)
    weights = replace(
        base,
        attention=wanted,
        dense_ffn=wanted,
        experts=wanted,
        shared_experts=wanted,
        scale_block=INT4_GROUP if wanted == "int4" else None,
    )
    return replace(spec, layers=layers, weights=weights)


def _stored(layers: Sequence[Layer], schemes: Sequence[Scheme], kept: Modules) -> list[dict[str, DType | None]]:
    """For every layer, the dtype of each kind of tensor it has; None: not quantised."""
    sets = [kept, *(scheme.targets for scheme in schemes if scheme.targets is not None)]
    one_by_one = any(modules.name_layers for modules in sets)
    known: dict[tuple[object, ...], dict[str, DType | None]] = {}
    stored = []
    for index, layer in enumerate(layers):
        key = (index if one_by_one else 0, type(layer.attention), layer.ffn)
        if key not in known:
            names = module_names(layer, index)
            known[key] = {kind: _dtype(modules, schemes, kept) for kind, modules in names.items()}
        stored.append(known[key])
    return stored


def _dtype(modules: Sequence[str], schemes: Sequence[Scheme], kept: Modules) -> DType | None:
    if any(module in kept for module in modules):
        return None
    for scheme in schemes:
        if scheme.targets is not None and any(module in scheme.targets for module in modules):
            return scheme.dtype
    return next((scheme.dtype for scheme in schemes if scheme.targets is None), None)


def _departing(layer: Layer, stored: Mapping[str, DType | None], model: WeightFormat, activation: DType) -> Layer:
    """The layer, with a format of its own if it is not the model's."""
    own: dict[str, Any] = {kind: dtype or activation for kind, dtype in stored.items()}
    if "attention" in own and own["attention_out"] == own["attention"]:
        own["attention_out"] = None
    weights = replace(model, **own)
    return layer if weights == model else replace(layer, weights=weights)


def _quantizes_head(config: Mapping[str, Any], kept: Modules) -> bool:
    return bool(config.get("lm_head") or config.get("quantize_lm_head")) and "lm_head" not in kept
