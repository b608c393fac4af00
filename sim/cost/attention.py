"""Attention, the one operator that knows contexts: exact sums for decodes, causal areas for prefill chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sim.cost.curves import NOTHING, Parts, causal_area, decode_attention, prefill_attention, ridge
from sim.cost.device import Device
from sim.cost.operators import Operator, total
from sim.cost.shapes import split
from sim.hardware import DecodeAttentionCurve, PrefillAttentionCurve
from sim.models.dtypes import bytes_per_element
from sim.models.memory import kv_dtype_bytes, layer_kv_bytes_per_token, windows
from sim.models.spec import Attention, LatentAttention, LinearAttention, ModelSpec
from sim.work import PrefillChunk, StepWork

LATENT_DECODE_MEMORY = 0.85
LATENT_DECODE_COMPUTE = 0.55
"""MLA decode reaches 0.85 of the bandwidth share of a grouped-query kernel, and 0.55 of the 16-bit peak: no kernel
table of it exists, these reproduce served DeepSeek models."""
SCAN_FLOPS = 6
"""Per token and element of a linear layer's state: decay, rank-one update, read-out."""


class AttentionCost:
    """Time of all layers' attention in one step, on one rank."""

    def __init__(self, model: ModelSpec, device: Device, ranks: int, kv_dtype: str) -> None:
        self._device = device
        self._ranks = ranks
        self._kv_bytes = kv_dtype_bytes(kv_dtype, model)
        self._windows = windows(model)
        self._shapes = Counter(layer.attention for layer in model.layers if layer.attention is not None)
        self._peak, self._dtype = device.peak(model.activation_dtype)
        self._state_bytes = bytes_per_element(model.activation_dtype)

    def parts(self, work: StepWork) -> Parts:
        """Summed over layers."""
        if not self._shapes:
            return NOTHING
        return total(self.operators(work))

    def operators(self, work: StepWork) -> list[Operator]:
        """One operator per kind of layer and phase."""
        operators: list[Operator] = []
        for shape, count in self._shapes.items():
            if isinstance(shape, LinearAttention):
                operators.append(self._linear(shape, work, count))
                continue
            if work.decode_sequences:
                operators.append(self._decode(shape, work, count))
            if work.chunks:
                operators.append(self._prefill(shape, work.chunks, count))
        return operators

    def _decode(self, shape: Attention | LatentAttention, work: StepWork, count: int) -> Operator:
        sequences = work.decode_sequences
        contexts: float = work.decode_context_tokens
        read_bytes = layer_kv_bytes_per_token(shape, self._ranks, self._kv_bytes)
        heads = split(shape.query_heads, self._ranks)
        extra = NOTHING
        if isinstance(shape, LatentAttention):
            curve = self._latent_curve()
            width, kv_heads = 2 * shape.kv_lora_rank + shape.rope_head_dim, 1
            if shape.index_topk_tokens is not None:
                extra = self._index(shape, contexts)
                contexts = sequences * min(contexts / sequences, shape.index_topk_tokens)
        else:
            curve = self._device.decode_attention(shape.head_dim)
            width, kv_heads = shape.head_dim + shape.value_head_dim, split(shape.kv_heads, self._ranks)
            if shape.window_tokens is not None:
                contexts = work.decode_window_tokens[self._windows.index(shape.window_tokens)]
        flops, kv_bytes = 2 * heads * width * contexts, read_bytes * contexts
        parts = decode_attention(curve, sequences, kv_heads, kv_bytes, flops, self._peak, self._device.bandwidth)
        if work.chunks and self._device.mixed_step_decode != 1.0:
            slower = self._device.mixed_step_decode
            parts = parts._replace(compute_s=parts.compute_s * slower, memory_s=parts.memory_s * slower)
        return Operator(
            "decode attention", count, flops * count, kv_bytes * count, parts.plus(extra).times(count), self._dtype
        )

    def _latent_curve(self) -> DecodeAttentionCurve:
        curve = self._device.decode_attention(128)
        if self._device.ideal:
            return curve
        return replace(curve, memory=curve.memory * LATENT_DECODE_MEMORY, compute=LATENT_DECODE_COMPUTE, head_fill=0.0)

    def _index(self, shape: LatentAttention, contexts: float) -> Parts:
        """The indexer scores every cached token before the best are attended to."""
        flops = 2 * shape.index_heads * shape.index_head_dim * contexts
        moved = shape.index_head_dim * contexts
        return ridge(flops / self._peak, moved / self._device.bandwidth, float("inf"), 0.0)

    def _prefill(self, shape: Attention | LatentAttention, chunks: tuple[PrefillChunk, ...], count: int) -> Operator:
        heads = split(shape.query_heads, self._ranks)
        if isinstance(shape, LatentAttention):
            query_dim, value_dim, window = shape.nope_head_dim + shape.rope_head_dim, shape.value_head_dim, None
        else:
            query_dim, value_dim, window = shape.head_dim, shape.value_head_dim, shape.window_tokens
        curve = self._device.prefill_attention(query_dim)
        read_bytes = layer_kv_bytes_per_token(shape, self._ranks, self._kv_bytes)
        parts, flops, moved = Parts(0.0, 0.0, 0.0, curve.launch_s), 0.0, 0.0
        for chunk in chunks:
            area = causal_area(chunk.tokens, chunk.context_tokens, window)
            length = chunk.tokens + chunk.context_tokens
            chunk_flops = 2.0 * heads * (query_dim + value_dim) * area
            chunk_bytes = chunk.tokens * heads * (query_dim + value_dim) * 2 + read_bytes * min(
                length, (window or length) + chunk.tokens
            )
            parts = parts.plus(
                prefill_attention(
                    curve, len(chunks), heads, length, chunk_flops, chunk_bytes, self._peak, self._device.bandwidth
                )
            )
            flops += chunk_flops
            moved += chunk_bytes
            if isinstance(shape, LatentAttention):
                parts = parts.plus(self._expand(shape, heads, chunk.context_tokens, curve))
        return Operator("prefill attention", count, flops * count, moved * count, parts.times(count), self._dtype)

    def _expand(self, shape: LatentAttention, heads: int, context_tokens: int, curve: PrefillAttentionCurve) -> Parts:
        """MLA's keys and values of the chunk's cached context are expanded from the latent anew."""
        columns = heads * (shape.nope_head_dim + shape.value_head_dim)
        flops = 2 * columns * shape.kv_lora_rank * context_tokens
        return Parts(flops / (self._peak * curve.compute), 0.0, 0.0, 0.0)

    def _linear(self, shape: LinearAttention, work: StepWork, count: int) -> Operator:
        """Every sequence's state is read and written once; every token passes the scan."""
        width = 4 if shape.recurrent_state_fp32 else self._state_bytes
        state = (shape.recurrent_state_elements * width + shape.conv_state_elements * self._state_bytes) / self._ranks
        sequences = work.decode_sequences + len(work.chunks)
        moved = 2.0 * state * sequences
        flops = SCAN_FLOPS * work.tokens * shape.recurrent_state_elements / self._ranks
        parts = ridge(flops / self._peak, moved / self._device.elementwise_bandwidth, float("inf"), 0.0)
        return Operator(f"{shape.kind} scan", count, flops * count, moved * count, parts.times(count), self._dtype)
