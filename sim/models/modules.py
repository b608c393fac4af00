"""Names of a checkpoint's modules, and the patterns by which quantisation configs pick them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from sim.errors import UnsupportedModel
from sim.models.spec import DenseFfn, LatentAttention, Layer, LinearAttention, MoeFfn

ROOTS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers")
"""Where checkpoints keep their layers."""
GROUPED = (("self_attn", "mixer"), ("q_proj", "qkv_proj"), ("o_proj",))
LATENT = (("self_attn",), ("q_b_proj", "q_proj"), ("o_proj",))
LINEAR = (("linear_attn", "mixer"), ("in_proj", "in_proj_qkvz", "in_proj_qkv"), ("out_proj",))
"""(where, projections in, projections out) of each kind of attention."""
WIDENING = ("gate_proj", "up_proj", "gate_up_proj")
BLOCKS = ("mlp", "mixer", "feed_forward")
EXPERTS = (*(f"{block}.experts" for block in BLOCKS), "block_sparse_moe.experts", "experts")
SHARED = tuple(f"{block}.{name}" for block in BLOCKS for name in ("shared_experts", "shared_expert"))


class Modules:
    """A set of module names given as names, parts of names (``gate``), globs (``*.mlp*``) or expressions (``re:``)."""

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = list(patterns)
        self.name_layers = any(character.isdigit() for pattern in listed for character in pattern)
        """Whether layers of the same make may be told apart."""
        expressions = [pattern[3:] for pattern in listed if pattern.startswith("re:")]
        globs = [pattern for pattern in listed if "*" in pattern and not pattern.startswith("re:")]
        self._names = {pattern for pattern in listed if "*" not in pattern and not pattern.startswith("re:")}
        whole = [translate(glob) for pattern in globs for glob in (pattern, f"{pattern}.*")]
        try:
            self._expressions = [re.compile(expression) for expression in (*expressions, *whole)]
        except re.error as error:
            raise UnsupportedModel(
                f"quantization_config has an expression that cannot be read: {error}", "mend its ignore list or targets"
            ) from error

    def __contains__(self, module: str) -> bool:
        """Whether the module, or one it is part of, is named."""
        parts = module.split(".")
        if self._names and any(
            ".".join(parts[first:last]) in self._names
            for first in range(len(parts))
            for last in range(first + 1, len(parts) + 1)
        ):
            return True
        return any(expression.match(module) for expression in self._expressions)


def module_names(layer: Layer, index: int) -> dict[str, list[str]]:
    """For each kind of tensor of a layer, the names that stand for it in checkpoints."""
    kinds: dict[str, list[str]] = {}
    if layer.attention is not None:
        latent, linear = isinstance(layer.attention, LatentAttention), isinstance(layer.attention, LinearAttention)
        places, inward, outward = LATENT if latent else LINEAR if linear else GROUPED
        kinds["attention"] = [f"{place}.{name}" for place in places for name in inward]
        kinds["attention_out"] = [f"{place}.{name}" for place in places for name in outward]
    if isinstance(layer.ffn, DenseFfn):
        kinds["dense_ffn"] = [f"{block}.{name}" for block in BLOCKS for name in WIDENING]
    elif isinstance(layer.ffn, MoeFfn):
        kinds["experts"] = [f"{place}.0.{name}" for place in EXPERTS for name in (*WIDENING, "w1")]
        if layer.ffn.shared_intermediate:
            kinds["shared_experts"] = [f"{place}.{name}" for place in SHARED for name in WIDENING]
    return {kind: [f"{root}.{index}.{name}" for root in ROOTS for name in names] for kind, names in kinds.items()}
