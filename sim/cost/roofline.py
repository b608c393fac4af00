"""The roofline model of a decoder, operator by operator: max(FLOPs / peak, bytes / bandwidth), bent by curves."""

from __future__ import annotations

from collections import Counter

from sim.cost.attention import AttentionCost
from sim.cost.curves import Parts, collective, distinct_experts, experts, gemm
from sim.cost.device import Device
from sim.cost.dtypes import ACTIVATION_BYTES
from sim.cost.operators import Operator, total
from sim.cost.shapes import Gemm, attention_gemms, ffn_gemms
from sim.hardware import HardwareProfile, HostOverheads
from sim.models.dtypes import stored_bytes
from sim.models.spec import Attention, DType, LatentAttention, LinearAttention, ModelSpec, MoeFfn, WeightFormat
from sim.work import DecodeTime, StepTime, StepWork

ELEMENTWISE_PASSES = 5
"""Reads and writes of a hidden state per layer by norms, residuals and activation functions that do not fuse."""
QK_NORM_BYTES = 8
"""Norms over all heads of queries and keys exchange one FP32 sum of squares each, per token (as vLLM does)."""
SAMPLER_S = 20e-6
LOGIT_BYTES = 8
"""A logit is written in 16 bits, read, and turned into FP32 for sampling."""
ABSTRACT_COLUMNS = 8192
"""Width an abstract model's weights are taken to have; only calibrated curves look at it."""


class RooflineCost:
    """Seconds of a step on one tensor-parallel group.

    ``ideal``: datasheet peaks and perfect overlap within each operator, no launches, no host, no padding. Otherwise the
    profile's curves and the engine's host overheads (``host``); steps that only decode are padded to the next of
    ``graph_sizes``. What depends on the token count alone is tabulated, so a step costs O(1).
    """

    def __init__(
        self,
        model: ModelSpec,
        profile: HardwareProfile,
        *,
        tensor_parallel: int = 1,
        kv_dtype: str = "auto",
        host: HostOverheads | None = None,
        ideal: bool = False,
        graph_sizes: tuple[int, ...] = (),
    ) -> None:
        self.model = model
        self._ranks = tensor_parallel
        self._device = Device(profile, ideal=ideal)
        self._layers = Counter(model.layers)
        self._attention = AttentionCost(model, self._device, tensor_parallel, kv_dtype)
        self._all_reduce = self._device.all_reduce(tensor_parallel) if tensor_parallel > 1 else None
        self._graph_sizes = () if ideal else graph_sizes
        self._padded: dict[int, int] = {}
        self._by_tokens: dict[int, Parts] = {}
        self._by_sampled: dict[int, Parts] = {}
        self._by_decodes: dict[int, DecodeTime | None] = {}
        depth = len(model.layers)
        slowdown = profile.host.slowdown
        overheads = None if ideal else host
        self._step_s = overheads.step_s * slowdown if overheads else 0.0
        self._sequence_s = overheads.sequence_s * slowdown if overheads else 0.0
        self._prefill_s = overheads.prefill_layer_s * slowdown * depth if overheads else 0.0
        self._gap_s = overheads.layer_gap_s * slowdown * depth if overheads else 0.0

    def step_time(self, work: StepWork) -> StepTime:
        """Host and device seconds of one step."""
        chunks, decodes = work.chunks, work.decode_sequences
        if decodes and not chunks and not work.draft_tokens:
            time = self.decode_time(decodes)
            if time is not None:
                return time.at(work.decode_context_tokens, work.decode_window_tokens)
        tokens = work.tokens if chunks else self._graph_size(work.decode_tokens)
        table, head = self._tables(tokens, work.sampled_sequences)
        attention = self._attention.parts(work)
        return StepTime(
            self._step_s + self._sequence_s * (decodes + len(chunks)) + (self._prefill_s if chunks else 0.0),
            table.compute_s + head.compute_s + attention.compute_s,
            table.memory_s + head.memory_s + attention.memory_s,
            table.communication_s + head.communication_s + attention.communication_s,
            table.launch_s + head.launch_s + attention.launch_s + self._gap_s,
        )

    def decode_time(self, sequences: int) -> DecodeTime | None:
        """Tabulated by their number; None where an indexer picks the tokens to attend to."""
        try:
            return self._by_decodes[sequences]
        except KeyError:
            time = self._by_decodes[sequences] = self._decode_time(sequences)
            return time

    def _decode_time(self, sequences: int) -> DecodeTime | None:
        attention = self._attention.decode_time(sequences)
        if attention is None:
            return None
        table, head = self._tables(self._graph_size(sequences), sequences)
        return attention._replace(
            host_s=self._step_s + self._sequence_s * sequences,
            compute_s=table.compute_s + head.compute_s + attention.compute_s,
            memory_s=table.memory_s + head.memory_s + attention.memory_s,
            communication_s=table.communication_s + head.communication_s + attention.communication_s,
            launch_s=table.launch_s + head.launch_s + attention.launch_s + self._gap_s,
        )

    def _tables(self, tokens: int, sampled: int) -> tuple[Parts, Parts]:
        """What depends on the token count alone, and the LM head: both worked out once."""
        table = self._by_tokens.get(tokens)
        if table is None:
            table = self._by_tokens[tokens] = total(self._token_operators(tokens))
        head = self._by_sampled.get(sampled)
        if head is None:
            head = self._by_sampled[sampled] = total(self._head_operators(sampled))
        return table, head

    def operators(self, work: StepWork) -> list[Operator]:
        """The operators of a step, in order; their parts sum to the device's time less the engine's gaps."""
        tokens = self._graph_size(work.decode_tokens) if not work.chunks else work.tokens
        return [
            *self._token_operators(tokens),
            *self._attention.operators(work),
            *self._head_operators(work.sampled_sequences),
        ]

    def _graph_size(self, tokens: int) -> int:
        size = self._padded.get(tokens)
        if size is None:
            size = next((size for size in self._graph_sizes if size >= tokens), tokens)
            self._padded[tokens] = size
        return size

    def _token_operators(self, tokens: int) -> list[Operator]:
        """Everything that depends on the number of tokens alone."""
        if not tokens:
            return []
        model = self.model
        if model.abstract_parameters is not None:
            inner = model.abstract_parameters / ABSTRACT_COLUMNS
            return [
                self._gemm(
                    Gemm("weights", ABSTRACT_COLUMNS, inner, model.weights.attention), tokens, 1, weights_only=True
                )
            ]
        operators = [self._elementwise("embedding", 2 * tokens * model.hidden * ACTIVATION_BYTES, 1)]
        for layer, count in self._layers.items():
            weights = layer.weights or model.weights
            reduces = 0
            if layer.attention is not None:
                gemms = attention_gemms(layer.attention, weights, model.hidden, self._ranks)
                operators += [self._gemm(shape, tokens, count) for shape in gemms]
                reduces += 1
                if self._all_reduce is not None and _norms_full_qk(layer.attention):
                    operators.append(self._reduce(tokens * QK_NORM_BYTES, count))
            if layer.ffn is not None:
                gemms = ffn_gemms(layer.ffn, weights, model.hidden, self._ranks)
                operators += [self._gemm(shape, tokens, count) for shape in gemms]
                reduces += 1
                if isinstance(layer.ffn, MoeFfn):
                    operators.append(self._experts(layer.ffn, weights, tokens, count))
            passes = (
                ELEMENTWISE_PASSES if layer.attention is not None and layer.ffn is not None else ELEMENTWISE_PASSES / 2
            )
            moved = passes * tokens * model.hidden * ACTIVATION_BYTES
            operators.append(self._elementwise("norms and activations", moved, count))
            if self._all_reduce is not None:
                operators.append(self._reduce(tokens * model.hidden * ACTIVATION_BYTES, reduces * count))
        return operators

    def _head_operators(self, sampled: int) -> list[Operator]:
        """LM head and sampling, on the rows that sample."""
        model = self.model
        if not sampled or model.abstract_parameters is not None:
            return []
        columns = model.vocabulary / self._ranks
        head = self._gemm(Gemm("lm head", columns, model.hidden, model.weights.lm_head), sampled, 1)
        if self._device.ideal:
            return [head]
        sampler = self._elementwise("sampler", sampled * model.vocabulary * LOGIT_BYTES, 1)
        launched = sampler.parts.plus(Parts(0.0, 0.0, 0.0, SAMPLER_S))
        return [head, Operator("sampler", 1, 0.0, sampler.hbm_bytes, launched, sampler.dtype)]

    def _gemm(self, shape: Gemm, tokens: int, count: int, *, weights_only: bool = False) -> Operator:
        peak, dtype = self._device.peak(shape.dtype)
        elements = shape.columns * shape.inner
        hbm_bytes = self._stored(elements, shape.dtype)
        if not weights_only:
            hbm_bytes += tokens * (shape.columns + shape.inner) * ACTIVATION_BYTES
        curve = self._device.gemm(shape.dtype)
        parts = gemm(curve, tokens, shape.columns, shape.inner, hbm_bytes, peak, self._device.bandwidth)
        return Operator(shape.name, count, 2 * elements * tokens * count, hbm_bytes * count, parts.times(count), dtype)

    def _stored(self, elements: float, dtype: DType) -> float:
        weights = self.model.weights
        return stored_bytes(elements, dtype, weights.scale_block, zero_points=weights.zero_points)

    def _experts(self, ffn: MoeFfn, weights: WeightFormat, tokens: int, count: int) -> Operator:
        peak, dtype = self._device.peak(weights.experts)
        curve = self._device.moe(weights.experts)
        distinct = distinct_experts(ffn.experts, ffn.experts_per_token, tokens * curve.skew)
        share = ffn.expert_parameters / self._ranks
        routed = tokens * ffn.experts_per_token
        width = 2 * self.model.hidden + ffn.matrices * ffn.expert_intermediate / self._ranks
        read_bytes, moved_bytes = distinct * self._stored(share, weights.experts), routed * width * ACTIVATION_BYTES
        hbm_bytes = read_bytes + moved_bytes
        bandwidth = self._device.bandwidth
        if self._device.ideal:
            parts = experts(curve, routed, distinct, 2 * share, hbm_bytes, peak, bandwidth)
        else:  # gathering, activation and weighted sum are kernels of their own, beside the grouped products
            moved = Parts(0.0, moved_bytes / self._device.elementwise_bandwidth, 0.0, 0.0)
            parts = experts(curve, routed, distinct, 2 * share, read_bytes, peak, bandwidth).plus(moved)
        return Operator("experts", count, 2 * share * routed * count, hbm_bytes * count, parts.times(count), dtype)

    def _elementwise(self, name: str, hbm_bytes: float, count: int) -> Operator:
        parts = Parts(0.0, hbm_bytes / self._device.elementwise_bandwidth, 0.0, 0.0)
        return Operator(name, count, 0.0, hbm_bytes * count, parts.times(count), self.model.activation_dtype)

    def _reduce(self, message_bytes: float, count: int) -> Operator:
        assert self._all_reduce is not None
        parts = collective(self._all_reduce, message_bytes)
        return Operator("all-reduce", count, 0.0, 0.0, parts.times(count), self.model.activation_dtype)


def _norms_full_qk(attention: Attention | LatentAttention | LinearAttention) -> bool:
    return isinstance(attention, Attention) and attention.norms_full_qk
