"""The operators of a decoder whose work depends on a number of tokens alone, as functions of that number.

What does not depend on it is worked out when the function is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from sim.cost.curves import Parts, busiest_share, collective, distinct_experts, experts, gemm
from sim.cost.device import Device
from sim.cost.dtypes import ACTIVATION_BYTES
from sim.cost.operators import Operator
from sim.cost.shapes import Gemm, attention_gemms, ffn_gemms
from sim.hardware import CollectiveCurve
from sim.hardware.collectives import node_devices
from sim.models.dtypes import stored_bytes
from sim.models.memory import share_of_experts
from sim.models.parallel import stage_layers
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
from sim.parallel import Parallelism

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
    """The operators of a model on one GPU of a replica; with a ``stage``, those of one pipeline stage.

    The whole model is all stages in turn, sends between them included.
    """

    def __init__(self, model: ModelSpec, device: Device, parallel: Parallelism, stage: int | None = None) -> None:
        first, last = (0, parallel.pipeline - 1) if stage is None else (stage, stage)
        self._model = model
        self._device = device
        self._parallel = parallel
        self._ranks = parallel.tensor
        self._all_reduce = device.all_reduce(parallel.tensor) if parallel.tensor > 1 else None
        group = parallel.tensor * parallel.data
        self._sends = Counter(device.send(index, group) for index in range(first, min(last + 1, parallel.pipeline - 1)))
        self._first, self._last = first == 0, last == parallel.pipeline - 1
        begin, end = stage_layers(model, parallel.pipeline, first)[0], stage_layers(model, parallel.pipeline, last)[1]
        self._layers = Counter(model.layers[begin:end])

    def of_tokens(self) -> list[Term]:
        """Of all tokens that one data-parallel rank has in a step, but for what ``of_group`` has."""
        model = self._model
        if model.abstract_parameters is not None:
            inner = model.abstract_parameters / ABSTRACT_COLUMNS
            weights = Gemm("weights", ABSTRACT_COLUMNS, inner, model.weights.attention)
            return [self._gemm(weights, 1, weights_only=True)]
        embedding = [self._elementwise("embedding", 2 * model.hidden * ACTIVATION_BYTES, 1)] if self._first else []
        layers = [term for layer, count in self._layers.items() for term in self._layer(layer, count)]
        sends = [self._send(curve, count) for curve, count in self._sends.items()]
        return [*embedding, *layers, *sends]

    def of_sampled(self) -> list[Term]:
        """LM head and sampling, of the rows that sample."""
        model = self._model
        if model.abstract_parameters is not None or not self._last:
            return []
        head = self._gemm(Gemm("lm head", model.vocabulary / self._ranks, model.hidden, model.weights.lm_head), 1)
        if self._device.ideal:
            return [head]
        return [head, self._elementwise("sampler", model.vocabulary * LOGIT_BYTES, 1, launch_s=SAMPLER_S)]

    def of_group(self) -> list[Term]:
        """With several data-parallel ranks, of all tokens of their common step: experts and the ways to them."""
        if self._parallel.data == 1:
            return []
        terms: list[Term] = []
        for layer, count in self._layers.items():
            if isinstance(layer.ffn, MoeFfn):
                terms.append(self._experts(layer.ffn, layer.weights or self._model.weights, count))
                terms.append(self._exchange(layer.ffn, count))
        return terms

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
            if isinstance(layer.ffn, MoeFfn) and self._parallel.data == 1:
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
        """Of the busiest share, which sets the time: it gets ``load`` times its even part of the tokens.

        It reads as many distinct experts as the others: skewed routing sends the tokens to fewer of them.
        """
        peak, dtype = self._device.peak(weights.experts)
        curve, bandwidth = self._device.moe(weights.experts), self._device.bandwidth
        shares, split = self._parallel.expert, self._parallel.expert_tensor
        load = busiest_share(curve, shares)
        held, routed_share = share_of_experts(ffn, shares) / ffn.experts, ffn.experts_per_token * load / shares
        share = ffn.expert_parameters / split
        expert_bytes = self._stored(share, weights.experts)
        width = 2 * self._model.hidden + ffn.matrices * ffn.expert_intermediate / split
        ideal, elementwise_bandwidth = self._device.ideal, self._device.elementwise_bandwidth

        def term(tokens: int) -> Operator:
            distinct = held * distinct_experts(ffn.experts, ffn.experts_per_token, tokens * curve.skew)
            routed = tokens * routed_share
            read_bytes, moved_bytes = distinct * expert_bytes, routed * width * ACTIVATION_BYTES
            hbm_bytes = read_bytes + moved_bytes
            if ideal:
                parts = experts(curve, routed, distinct, 2 * share, hbm_bytes, peak, bandwidth)
            else:  # gathering, activation and weighted sum are kernels of their own, beside the grouped products
                moved = Parts(0.0, moved_bytes / elementwise_bandwidth, 0.0, 0.0)
                slower = self._device.expert_factor(weights.experts, tokens)
                parts = experts(curve, routed, distinct, 2 * share, read_bytes, peak, bandwidth)
                parts = Parts(parts.compute_s * slower, parts.memory_s * slower, 0.0, parts.launch_s).plus(moved)
            flops = 2 * share * routed * count
            return Operator("experts", count, flops, hbm_bytes * count, parts.times(count), dtype)

        return term

    def _exchange(self, ffn: MoeFfn, count: int) -> Term:
        """Tokens to the experts of other data-parallel ranks and back.

        Every rank gathers all tokens, and the sums are scattered (vLLM's and SGLang's default); or, where that sends
        fewer bytes, each token goes to its experts' GPUs alone and the outputs come back (all-to-all, as DeepEP).
        """
        parallel, hidden, dtype = self._parallel, self._model.hidden, self._model.activation_dtype
        gpus = parallel.tensor * parallel.data
        inside = gpus <= node_devices(self._device.profile)
        gather = self._device.all_gather(parallel.data if inside else gpus)
        to_all = self._device.all_to_all(gpus)
        # Of the copies that a GPU's part of the tokens needs, those that leave it.
        leaving = ffn.experts_per_token * parallel.expert_tensor * (1 - 1 / parallel.expert) / gpus

        def term(tokens: int) -> Operator:
            hidden_bytes = tokens * hidden * ACTIVATION_BYTES
            parts = collective(gather, hidden_bytes)
            if leaving:
                parts = min(parts, collective(to_all, hidden_bytes * leaving), key=lambda way: way.communication_s)
            return Operator("dispatch and combine", 2 * count, 0.0, 0.0, parts.times(2 * count), dtype)

        return term

    def _send(self, curve: CollectiveCurve, count: int) -> Term:
        """Hidden states to the next pipeline stage."""
        token_bytes, dtype = self._model.hidden * ACTIVATION_BYTES, self._model.activation_dtype

        def term(tokens: int) -> Operator:
            parts = collective(curve, tokens * token_bytes).times(count)
            return Operator("send to next stage", count, 0.0, 0.0, parts, dtype)

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
