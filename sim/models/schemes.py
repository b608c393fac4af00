"""What a quantization_config says of dtypes, in the words of each tool that writes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sim.errors import UnsupportedModel
from sim.models.dtypes import INT4_GROUP
from sim.models.modules import Modules
from sim.models.spec import DType

KEPT = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
INTEGER_METHODS = ("awq", "gptq", "gptq_marlin", "auto-round", "auto_round")
ALGORITHMS: tuple[tuple[str, DType], ...] = (
    ("MXFP4", "mxfp4"),
    ("FP4", "nvfp4"),
    ("W4A", "int4"),
    ("INT4", "int4"),
    ("FP8", "fp8"),
    ("INT8", "int8"),
    ("W8A8", "int8"),
)
"""ModelOpt's names of algorithms, the first that is part of the name counts."""
FP8_BLOCK = 128
MIXED = "MIXED_PRECISION"
MXFP4_GROUP = 32


class Scheme(NamedTuple):
    """One dtype, and the modules it is for (None: every matrix that nothing else names)."""

    dtype: DType
    block: int | None = None
    zero_points: bool = False
    targets: Modules | None = None


def schemes_of(config: Mapping[str, Any], name: str) -> list[Scheme]:
    """Raises UnsupportedModel for a method, or a width of numbers, that is not known."""
    method = str(config.get("quant_method") or "").lower()
    if method == "fp8":
        return [Scheme("fp8", _edge(config.get("weight_block_size")))]
    if method == "fbgemm_fp8":
        return [Scheme("fp8")]
    if method == "mxfp4":
        return [Scheme("mxfp4")]
    if method in INTEGER_METHODS:
        return [_integer(config, name, zero_points=True)]
    if config.get("quant_algo"):
        return list(_modelopt(config, name))
    if config.get("config_groups"):
        return list(_groups(config["config_groups"], name))
    raise _unknown(name, method or "without quant_method")


def kept_modules(config: Mapping[str, Any]) -> list[str]:
    """Patterns of modules that stay in 16 bits."""
    listed = [str(pattern) for key in KEPT for pattern in config.get(key) or []]
    dynamic = config.get("dynamic") or {}
    return listed + [f"re:{rule[2:]}" for rule in dynamic if str(rule).startswith("-:")]


def kv_dtype(config: Mapping[str, Any] | None) -> DType | None:
    """Dtype the checkpoint has scales to cache keys and values in; None: it has none."""
    if not config:
        return None
    scheme = config.get("kv_cache_scheme") or config.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        return "fp8" if (scheme.get("type"), scheme.get("num_bits")) == ("float", 8) else None
    return "fp8" if str(scheme).upper() == "FP8" else None


def _modelopt(config: Mapping[str, Any], name: str) -> Iterator[Scheme]:
    algorithm = str(config["quant_algo"]).upper()
    if algorithm != MIXED:
        yield _algorithm(config, algorithm, name)
        return
    modules = config.get("quantized_layers")
    if not isinstance(modules, Mapping):
        raise _unknown(name, "MIXED_PRECISION without quantized_layers")
    by_algorithm: dict[str, list[str]] = {}
    for module, details in modules.items():
        by_algorithm.setdefault(str(details.get("quant_algo")).upper(), []).append(str(module))
    for algorithm, names in sorted(by_algorithm.items()):
        yield _algorithm(config, algorithm, name)._replace(targets=Modules(names))


def _algorithm(config: Mapping[str, Any], algorithm: str, name: str) -> Scheme:
    dtype = next((dtype for word, dtype in ALGORITHMS if word in algorithm), None)
    if dtype is None or "MXFP8" in algorithm:
        raise _unknown(name, algorithm)
    if dtype == "int4":
        return Scheme(dtype, _size(config.get("group_size", INT4_GROUP)))
    return Scheme(dtype, FP8_BLOCK if "_PB_" in algorithm else None)


def _groups(groups: Mapping[str, Any], name: str) -> Iterator[Scheme]:
    """compressed-tensors: each group has targets, by name or by the class of the module."""
    for group in groups.values():
        weights = group.get("weights")
        if not weights:
            continue
        scheme = _compressed(weights, name)
        names = [str(target) for target in group.get("targets") or [] if str(target) != "Linear"]
        yield scheme._replace(targets=Modules(names)) if names else scheme


def _compressed(weights: Mapping[str, Any], name: str) -> Scheme:
    kind, bits, group = str(weights.get("type", "int")), weights.get("num_bits"), weights.get("group_size")
    if kind == "float" and bits == 4:
        return Scheme("mxfp4" if group == MXFP4_GROUP else "nvfp4")
    if kind == "float" and bits == 8:
        return Scheme("fp8", _edge(weights.get("block_structure")))
    if kind == "int" and bits in (4, 8):
        asymmetric = not weights.get("symmetric", True)
        return _integer({"bits": bits, "group_size": group}, name, zero_points=asymmetric)
    raise _unknown(name, f"with {bits}-bit {kind} weights")


def _integer(config: Mapping[str, Any], name: str, *, zero_points: bool) -> Scheme:
    bits = config.get("bits", config.get("w_bit"))
    group = config.get("group_size", config.get("q_group_size", INT4_GROUP))
    if bits == 8:
        return Scheme("int8")
    if bits != 4:
        raise _unknown(name, f"with {bits}-bit integers")
    return Scheme("int4", _size(group), zero_points)


def _size(group: object) -> int | None:
    """Weights per scale; None for one scale per row (-1)."""
    return group if isinstance(group, int) and group > 0 else None


def _edge(block: object) -> int | None:
    """Edge of the square of weights that share a scale."""
    return _size(block[0]) if isinstance(block, list) and block else None


def _unknown(name: str, what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name}: quantization_config {what} is not one that can be read",
        "remove quantization_config and say the dtype yourself: engine.weight_dtype, or --weight-dtype",
    )
