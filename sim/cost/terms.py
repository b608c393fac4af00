"""The operators of a decoder whose work depends on a number of tokens alone, as functions of that number.

What does not depend on it is worked out when the function is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from sim.cost.curves import Parts, collective, distinct_experts, experts, gemm
from sim.cost.device import Device
from sim.cost.dtypes import ACTIVATION_BYTES
from sim.cost.operators import Operator
from sim.cost.shapes import Gemm, attention_gemms, ffn_gemms
from sim.models.dtypes import stored_bytes
from sim.models.spec import (
    Attention,
    DType,
    LatentAttention,
    Layer,
    LinearAttention,
    ModelSpec,
    MoeFfn,
    WeightFormat,
)

ELEMENTWISE_PASSES = 5
"""Reads and writes of a hidden state per layer by norms, residuals and activation functions that do not fuse."""
QK_NORM_BYTES = 8
"""Norms over all heads of queries and keys exchange one FP32 sum of squares each, per token (as vLLM does)."""
SAMPLER_S = 20e-6
LOGIT_BYTES = 8
"""A logit is written in 16 bits, read, and turned into FP32 for sampling."""
ABSTRACT_COLUMNS = 8192
"""Width an abstract model's weights are taken to have; only calibrated curves look at it."""

Term = Callable[[int], Operator]


class Terms:
    """The operators of a model on one of ``ranks`` GPUs of a tensor-parallel group."""

    def __init__(self, model: ModelSpec, device: Device, ranks: int) -> None:
        self._model = model
        self._device = device
        self._ranks = ranks
        self._all_reduce = device.all_reduce(ranks) if ranks > 1 else None

    def of_tokens(self) -> list[Term]:
        """Of all tokens of a step."""
        model = self._model
        if model.abstract_parameters is not None:
            inner = model.abstract_parameters / ABSTRACT_COLUMNS
            weights = Gemm("weights", ABSTRACT_COLUMNS, inner, model.weights.attention)
            return [self._gemm(weights, 1, weights_only=True)]
        embedding = self._elementwise("embedding", 2 * model.hidden * ACTIVATION_BYTES, 1)
        return [
            embedding,
            *(term for layer, count in Counter(model.layers).items() for term in self._layer(layer, count)),
        ]

    def of_sampled(self) -> list[Term]:
        """LM head and sampling, of the rows that sample."""
        model = self._model
        if model.abstract_parameters is not None:
            return []
        head = self._gemm(Gemm("lm head", model.vocabulary / self._ranks, model.hidden, model.weights.lm_head), 1)
        if self._device.ideal:
            return [head]
        return [head, self._elementwise("sampler", model.vocabulary * LOGIT_BYTES, 1, launch_s=SAMPLER_S)]

    def _layer(self, layer: Layer, count: int) -> Iterator[Term]:
        hidden, weights = self._model.hidden, layer.weights or self._model.weights
        reduces = 0
        if layer.attention is not None:
            for shape in attention_gemms(layer.attention, weights, hidden, self._ranks):
                yield self._gemm(shape, count)
            reduces += 1
            if _norms_full_qk(layer.attention):
                yield from self._reduce(QK_NORM_BYTES, count)
        if layer.ffn is not None:
            for shape in ffn_gemms(layer.ffn, weights, hidden, self._ranks):
                yield self._gemm(shape, count)
            reduces += 1
            if isinstance(layer.ffn, MoeFfn):
                yield self._experts(layer.ffn, weights, count)
        passes = ELEMENTWISE_PASSES / 2 if layer.attention is None or layer.ffn is None else ELEMENTWISE_PASSES
        yield self._elementwise("norms and activations", passes * hidden * ACTIVATION_BYTES, count)
        yield from self._reduce(hidden * ACTIVATION_BYTES, reduces * count)

    def _gemm(self, shape: Gemm, count: int, *, weights_only: bool = False) -> Term:
        name, columns, inner = shape.name, shape.columns, shape.inner
        peak, dtype = self._device.peak(shape.dtype)
        curve, bandwidth = self._device.gemm(shape.dtype), self._device.bandwidth
        weight_bytes = self._stored(columns * inner, shape.dtype)
        token_bytes = 0.0 if weights_only else (columns + inner) * ACTIVATION_BYTES
        token_flops = 2 * columns * inner * count

        def term(tokens: int) -> Operator:
            hbm_bytes = weight_bytes + tokens * token_bytes
            parts = gemm(curve, tokens, columns, inner, hbm_bytes, peak, bandwidth)
            return Operator(name, count, token_flops * tokens, hbm_bytes * count, parts.times(count), dtype)

        return term

    def _experts(self, ffn: MoeFfn, weights: WeightFormat, count: int) -> Term:
        peak, dtype = self._device.peak(weights.experts)
        curve, bandwidth = self._device.moe(weights.experts), self._device.bandwidth
        share = ffn.expert_parameters / self._ranks
        expert_bytes = self._stored(share, weights.experts)
        width = 2 * self._model.hidden + ffn.matrices * ffn.expert_intermediate / self._ranks
        ideal, elementwise_bandwidth = self._device.ideal, self._device.elementwise_bandwidth

        def term(tokens: int) -> Operator:
            distinct = distinct_experts(ffn.experts, ffn.experts_per_token, tokens * curve.skew)
            routed = tokens * ffn.experts_per_token
            read_bytes, moved_bytes = distinct * expert_bytes, routed * width * ACTIVATION_BYTES
            hbm_bytes = read_bytes + moved_bytes
            if ideal:
                parts = experts(curve, routed, distinct, 2 * share, hbm_bytes, peak, bandwidth)
            else:  # gathering, activation and weighted sum are kernels of their own, beside the grouped products
                moved = Parts(0.0, moved_bytes / elementwise_bandwidth, 0.0, 0.0)
                parts = experts(curve, routed, distinct, 2 * share, read_bytes, peak, bandwidth).plus(moved)
            flops = 2 * share * routed * count
            return Operator("experts", count, flops, hbm_bytes * count, parts.times(count), dtype)

        return term

    def _elementwise(self, name: str, token_bytes: float, count: int, launch_s: float = 0.0) -> Term:
        moved_bytes, dtype = token_bytes * count, self._model.activation_dtype
        token_s = moved_bytes / self._device.elementwise_bandwidth

        def term(tokens: int) -> Operator:
            return Operator(name, count, 0.0, moved_bytes * tokens, Parts(0.0, token_s * tokens, 0.0, launch_s), dtype)

        return term

    def _reduce(self, token_bytes: float, count: int) -> Iterator[Term]:
        curve, dtype = self._all_reduce, self._model.activation_dtype
        if curve is None:
            return

        def term(tokens: int) -> Operator:
            parts = collective(curve, tokens * token_bytes).times(count)
            return Operator("all-reduce", count, 0.0, 0.0, parts, dtype)

        yield term

    def _stored(self, elements: float, dtype: DType) -> float:
        weights = self._model.weights
        return stored_bytes(elements, dtype, weights.scale_block, zero_points=weights.zero_points)


def _norms_full_qk(attention: Attention | LatentAttention | LinearAttention) -> bool:
    return isinstance(attention, Attention) and attention.norms_full_qk
