"""Kinds of attention: FLOPs, bytes and time of one layer's decodes and of its prefill chunks, on one rank.

Whatever does not depend on the step's work is worked out once. A kind's time and its FLOPs and bytes are apart, for a
simulation asks for the time alone, once per step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from sim.cost.curves import INFINITY, Parts, causal_area, decode_attention, prefill_attention, ridge
from sim.cost.device import Device
from sim.cost.dtypes import ACTIVATION_BYTES
from sim.cost.shapes import split
from sim.hardware import DecodeAttentionCurve
from sim.models.dtypes import bytes_per_element
from sim.models.memory import INDEX_SCALE_BYTES, layer_kv_bytes_per_token
from sim.models.spec import Attention, LatentAttention, LinearAttention
from sim.work import PrefillChunk, StepWork

LATENT_DECODE_MEMORY = 0.85
LATENT_DECODE_COMPUTE = 0.55
"""MLA decode reaches 0.85 of the bandwidth share of a grouped-query kernel, and 0.55 of the 16-bit peak: no kernel
table of it exists, these reproduce served DeepSeek models."""
LATENT_CURVE_HEAD_DIM = 128
"""The grouped-query kernel that MLA decode is told relative to."""
MOST_REMEMBERED = 20_000
"""Chunks of which a kind remembers the time."""
SCAN_FLOPS = 6
"""Per token and element of a linear layer's state: decay, rank-one update, read-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Where a layer runs and what it computes and caches in."""

    device: Device
    ranks: int
    kv_bytes: float
    """Of one cached number."""
    activation_dtype: str
    windows: tuple[int, ...]
    """The model's, in the order of ``StepWork.decode_window_tokens``."""


class Linear(NamedTuple):
    """One layer's decodes: a fixed time, and seconds per token that they attend to, in all or within a window."""

    fixed: Parts
    per_token: Parts
    window: int | None
    """Index into ``StepWork.decode_window_tokens``; None: ``decode_context_tokens``."""


class Kind(Protocol):
    """One layer. ``*_work``: FLOPs and HBM bytes."""

    name: str
    """Of the operator that is not decode attention."""
    decodes: bool
    """Decodes are an operator of their own; if not, all is in the ``prefill`` one."""

    def decode_parts(self, work: StepWork) -> Parts: ...

    def decode_rates(self, sequences: int) -> Linear | None:
        """``decode_parts`` of a step without chunks, as far as it is linear; None where it is not."""
        ...

    def decode_work(self, work: StepWork) -> tuple[float, float]: ...

    def prefill_parts(self, work: StepWork) -> Parts: ...

    def prefill_work(self, work: StepWork) -> tuple[float, float]: ...


class _Softmax:
    """What grouped-query and latent attention share."""

    name = "prefill attention"
    decodes = True
    _prepare_flops = 0.0
    """Before a chunk's attention, per unit of ``_prepared``."""

    def __init__(
        self, shape: Attention | LatentAttention, use: Use, *, query_dim: int, window: int | None, decode_width: int
    ) -> None:
        device = use.device
        self._peak = device.peak(use.activation_dtype)[0]
        self._bandwidth = device.bandwidth
        self._mixed = device.mixed_step_decode
        self._heads = split(shape.query_heads, use.ranks)
        self._read_bytes = layer_kv_bytes_per_token(shape, use.ranks, use.kv_bytes)
        self._decode_flops = 2 * self._heads * decode_width
        self._prefill = device.prefill_attention(query_dim)
        self._query_bytes = self._heads * (query_dim + shape.value_head_dim) * ACTIVATION_BYTES
        self._area_flops = 2.0 * self._heads * (query_dim + shape.value_head_dim)
        self._window = window
        self._prepare_peak = self._peak
        self._lone_chunks: dict[tuple[PrefillChunk, ...], Parts] = {}
        """Of steps with one chunk: most are."""

    def _decode(self, curve: DecodeAttentionCurve, kv_heads: int, work: StepWork, contexts: float) -> Parts:
        parts = self._over(curve, kv_heads, work.decode_sequences, contexts, _queries(work))
        if work.chunks and self._mixed != 1.0:
            return parts._replace(compute_s=parts.compute_s * self._mixed, memory_s=parts.memory_s * self._mixed)
        return parts

    def _over(
        self, curve: DecodeAttentionCurve, kv_heads: int, sequences: int, contexts: float, queries: float = 1.0
    ) -> Parts:
        """Decodes that attend to ``contexts`` tokens together, with ``queries`` tokens each."""
        flops, moved = self._decode_flops * contexts * queries, self._read_bytes * contexts
        return decode_attention(curve, sequences, kv_heads, moved, flops, self._peak, self._bandwidth)

    def _rates(self, curve: DecodeAttentionCurve, kv_heads: int, sequences: int, window: int | None) -> Linear:
        launch_s = self._over(curve, kv_heads, sequences, 0.0).launch_s
        return Linear(Parts(0.0, 0.0, 0.0, launch_s), self._over(curve, kv_heads, sequences, 1.0), window)

    def prefill_parts(self, work: StepWork) -> Parts:
        """All chunks of a step; they share one launch."""
        chunks = work.chunks
        if len(chunks) != 1:
            return self._chunks(chunks)
        parts = self._lone_chunks.get(chunks)
        if parts is None:
            parts = self._chunks(chunks)
            if len(self._lone_chunks) < MOST_REMEMBERED:
                self._lone_chunks[chunks] = parts
        return parts

    def _chunks(self, chunks: tuple[PrefillChunk, ...]) -> Parts:
        curve = self._prefill
        compute = memory = 0.0
        for chunk in chunks:
            flops, moved = self._chunk_work(chunk)
            length = chunk[0] + chunk[1]
            spent = prefill_attention(
                curve, len(chunks), self._heads, length, flops, moved, self._peak, self._bandwidth
            )
            compute += spent[0]
            memory += spent[1]
            if self._prepare_flops:
                compute += self._prepare_flops * self._prepared(chunk) / (self._prepare_peak * curve.compute)
        return tuple.__new__(Parts, (compute, memory, 0.0, curve.launch_s))

    def prefill_work(self, work: StepWork) -> tuple[float, float]:
        """Attention over each chunk's causal area, and what has to be computed first."""
        flops = hbm_bytes = 0.0
        for chunk in work.chunks:
            chunk_flops, chunk_bytes = self._chunk_work(chunk)
            flops += chunk_flops + self._prepare_flops * self._prepared(chunk)
            hbm_bytes += chunk_bytes
        return flops, hbm_bytes

    def _prepared(self, chunk: PrefillChunk) -> int:
        return chunk.context_tokens

    def _chunk_work(self, chunk: PrefillChunk) -> tuple[float, float]:
        tokens, context_tokens = chunk
        window, length = self._window, tokens + context_tokens
        seen = length if window is None else min(length, window + tokens)
        area = causal_area(tokens, context_tokens, window)
        return self._area_flops * area, tokens * self._query_bytes + self._read_bytes * seen


class GroupedKind(_Softmax):
    """Grouped-query attention, windowed or not."""

    def __init__(self, shape: Attention, use: Use) -> None:
        width = shape.head_dim + shape.value_head_dim
        reads = replace(shape, shares_kv=False)  # another layer's keys and values are not held again, but read
        super().__init__(reads, use, query_dim=shape.head_dim, window=shape.window_tokens, decode_width=width)
        self._curve = use.device.decode_attention(shape.head_dim)
        self._kv_heads = split(shape.kv_heads, use.ranks)
        self._index = None if shape.window_tokens is None else use.windows.index(shape.window_tokens)

    def decode_parts(self, work: StepWork) -> Parts:
        """Every sequence over its context, or its window's part of it."""
        return self._decode(self._curve, self._kv_heads, work, self._contexts(work))

    def decode_rates(self, sequences: int) -> Linear:
        """Linear in the contexts."""
        return self._rates(self._curve, self._kv_heads, sequences, self._index)

    def decode_work(self, work: StepWork) -> tuple[float, float]:
        """FLOPs and KV bytes."""
        contexts = self._contexts(work)
        return self._decode_flops * contexts * _queries(work), self._read_bytes * contexts

    def _contexts(self, work: StepWork) -> int:
        index = self._index
        return work.decode_context_tokens if index is None else work.decode_window_tokens[index]


class LatentKind(_Softmax):
    """Multi-head latent attention: absorbed in decode, expanded in prefill.

    With a sparse indexer every token is scored and only the best are attended to, absorbed in both phases.
    """

    def __init__(self, shape: LatentAttention, use: Use) -> None:
        query_dim = shape.nope_head_dim + shape.rope_head_dim
        width = 2 * shape.kv_lora_rank + shape.rope_head_dim
        super().__init__(shape, use, query_dim=query_dim, window=None, decode_width=width)
        curve = use.device.decode_attention(LATENT_CURVE_HEAD_DIM)
        if not use.device.ideal:
            slower = curve.memory * LATENT_DECODE_MEMORY
            curve = replace(curve, memory=slower, compute=LATENT_DECODE_COMPUTE, head_fill=0.0)
        self._curve = curve
        self._topk = shape.index_topk_tokens
        self._index_flops = 2 * shape.index_heads * shape.index_head_dim
        self._index_bytes = shape.index_head_dim + INDEX_SCALE_BYTES if shape.index_heads else 0
        self._index_peak = use.device.peak("fp8")[0]
        columns = self._heads * (shape.nope_head_dim + shape.value_head_dim)
        self._prepare_flops = 2.0 * columns * shape.kv_lora_rank
        if self._topk is not None:
            self._prepare_flops, self._prepare_peak = float(self._index_flops), self._index_peak
            self._area_flops = 2.0 * self._heads * width
            self._query_bytes = self._heads * width * ACTIVATION_BYTES

    def decode_parts(self, work: StepWork) -> Parts:
        """Attention over the latents, of the best tokens alone where an indexer picks them."""
        parts = self._decode(self._curve, 1, work, self._contexts(work))
        if self._topk is None:
            return parts
        scored = work.decode_context_tokens
        flops = self._index_flops * scored * _queries(work)
        scoring = ridge(flops / self._index_peak, self._index_bytes * scored / self._bandwidth, INFINITY, 0.0)
        return parts.plus(scoring)

    def decode_rates(self, sequences: int) -> Linear | None:
        """Linear in the contexts, unless the best tokens are picked."""
        return self._rates(self._curve, 1, sequences, None) if self._topk is None else None

    def decode_work(self, work: StepWork) -> tuple[float, float]:
        """FLOPs and bytes of the latents and of the indexer's keys."""
        contexts, scored = self._contexts(work), 0 if self._topk is None else work.decode_context_tokens
        flops = (self._decode_flops * contexts + self._index_flops * scored) * _queries(work)
        return flops, self._read_bytes * contexts + self._index_bytes * scored

    def _prepared(self, chunk: PrefillChunk) -> int:
        """Cached tokens expanded out of their latents; or the pairs of tokens that the indexer scores."""
        if self._topk is None:
            return chunk.context_tokens
        return causal_area(chunk.tokens, chunk.context_tokens, None)

    def _chunk_work(self, chunk: PrefillChunk) -> tuple[float, float]:
        topk = self._topk
        if topk is None:
            return super()._chunk_work(chunk)
        tokens, context_tokens = chunk
        read = (self._read_bytes + self._index_bytes) * (tokens + context_tokens)
        return self._area_flops * causal_area(tokens, context_tokens, topk), tokens * self._query_bytes + read

    def _contexts(self, work: StepWork) -> float:
        if self._topk is None:
            return work.decode_context_tokens
        sequences = work.decode_sequences
        return sequences * min(work.decode_context_tokens / sequences, self._topk)


def _queries(work: StepWork) -> float:
    """Tokens of a decode that each attend to its context, which is read once: more than one where drafts are verified.

    The mean, and without the causal edge among them: exact where all decodes verify equally many.
    """
    return work.decode_tokens / work.decode_sequences


class LinearKind:
    """A fixed state per sequence: read and written once in a step, and every token passes the scan."""

    decodes = False

    def __init__(self, shape: LinearAttention, use: Use) -> None:
        self.name = f"{shape.kind} scan"
        self._peak = use.device.peak(use.activation_dtype)[0]
        self._bandwidth = use.device.elementwise_bandwidth
        width = bytes_per_element(use.activation_dtype)
        recurrent = 4 if shape.recurrent_state_fp32 else width
        self._state_bytes = (shape.recurrent_state_elements * recurrent + shape.conv_state_elements * width) / use.ranks
        self._token_flops = SCAN_FLOPS * shape.recurrent_state_elements / use.ranks

    def decode_parts(self, work: StepWork) -> Parts:
        """In the scan."""
        return self.prefill_parts(work)

    def decode_rates(self, sequences: int) -> Linear:
        """A state does not grow."""
        work = StepWork((), sequences, 0)
        return Linear(self.prefill_parts(work), Parts(0.0, 0.0, 0.0, 0.0), None)

    def decode_work(self, work: StepWork) -> tuple[float, float]:
        """In the scan."""
        return self.prefill_work(work)

    def prefill_parts(self, work: StepWork) -> Parts:
        """All sequences, decoding or not."""
        flops, moved = self.prefill_work(work)
        return ridge(flops / self._peak, moved / self._bandwidth, INFINITY, 0.0)

    def prefill_work(self, work: StepWork) -> tuple[float, float]:
        """FLOPs and bytes of the states."""
        moved = 2.0 * self._state_bytes * (work.decode_sequences + len(work.chunks))
        return self._token_flops * work.tokens, moved
