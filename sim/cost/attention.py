"""Attention, the one operator that knows contexts: exact sums for decodes, causal areas for prefill chunks."""

from __future__ import annotations

from collections import Counter

from sim.cost.curves import Parts
from sim.cost.device import Device
from sim.cost.kinds import GroupedKind, Kind, LatentKind, LinearKind, Use
from sim.cost.operators import Operator
from sim.models.memory import kv_dtype_bytes, windows
from sim.models.spec import Attention, LatentAttention, LinearAttention, ModelSpec
from sim.work import DecodeTime, StepWork


class AttentionCost:
    """Time of the attention of all layers (or those of a stage) in one step, on one tensor-parallel rank."""

    def __init__(
        self, model: ModelSpec, device: Device, ranks: int, kv_dtype: str, layers: tuple[int, int] | None = None
    ) -> None:
        self._windows = windows(model)
        use = Use(
            device=device,
            ranks=ranks,
            kv_bytes=kv_dtype_bytes(kv_dtype, model),
            activation_dtype=model.activation_dtype,
            windows=self._windows,
        )
        first, last = layers or (0, len(model.layers))
        shapes = Counter(layer.attention for layer in model.layers[first:last] if layer.attention is not None)
        self._kinds = [(_kind(shape, use), count) for shape, count in shapes.items()]
        self._mixed = device.mixed_step_decode
        self._by_decodes: dict[int, DecodeTime | None] = {}
        self._dtype = device.peak(model.activation_dtype)[1]

    def parts(self, work: StepWork) -> Parts:
        """Summed over layers: what the operators sum to, without making them.

        Decodes without drafts are taken from their rates, as in ``decode_time``.
        """
        decodes = work.decode_sequences
        linear = self._decodes(decodes) if work.chunks and decodes and not work.draft_tokens else None
        if linear is None:
            return self._kind_by_kind(work)
        time = linear.at(work.decode_context_tokens, work.decode_window_tokens)
        compute, memory, launch = time[1] * self._mixed, time[2] * self._mixed, time[4]
        for kind, count in self._kinds:
            spent = kind.prefill_parts(work)
            compute += spent[0] * count
            memory += spent[1] * count
            launch += spent[3] * count
        return tuple.__new__(Parts, (compute, memory, 0.0, launch))

    def _decodes(self, sequences: int) -> DecodeTime | None:
        """Of the kinds whose decodes are an operator of their own; worked out once for each number of sequences."""
        try:
            return self._by_decodes[sequences]
        except KeyError:
            decoding = [(kind, count) for kind, count in self._kinds if kind.decodes]
            time = self._by_decodes[sequences] = self._linear(decoding, sequences)
            return time

    def _kind_by_kind(self, work: StepWork) -> Parts:
        compute = memory = communication = launch = 0.0
        chunks, decodes = work.chunks, work.decode_sequences
        for kind, count in self._kinds:
            if decodes and kind.decodes:
                spent = kind.decode_parts(work)
                compute += spent[0] * count
                memory += spent[1] * count
                communication += spent[2] * count
                launch += spent[3] * count
            if chunks or not kind.decodes:
                spent = kind.prefill_parts(work)
                compute += spent[0] * count
                memory += spent[1] * count
                communication += spent[2] * count
                launch += spent[3] * count
        return Parts(compute, memory, communication, launch)

    def decode_time(self, sequences: int) -> DecodeTime | None:
        """Of steps that only decode; None where a kind's time is not linear in its contexts."""
        return self._linear(self._kinds, sequences)

    def _linear(self, kinds: list[tuple[Kind, int]], sequences: int) -> DecodeTime | None:
        constant = Parts(0.0, 0.0, 0.0, 0.0)
        rates = dict.fromkeys((None, *range(len(self._windows))), (0.0, 0.0))
        for kind, count in kinds:
            linear = kind.decode_rates(sequences)
            if linear is None:
                return None
            fixed, per_token, window = linear
            constant = constant.plus(fixed.times(count))
            compute, memory = rates[window]
            rates[window] = (compute + per_token.compute_s * count, memory + per_token.memory_s * count)
        compute, memory = rates.pop(None)
        return DecodeTime(
            host_s=0.0,
            compute_s=constant.compute_s,
            compute_s_per_token=compute,
            memory_s=constant.memory_s,
            memory_s_per_token=memory,
            communication_s=0.0,
            launch_s=constant.launch_s,
            windows=tuple(rates.values()),
        )

    def operators(self, work: StepWork) -> list[Operator]:
        """One operator per kind of layer and phase."""
        operators: list[Operator] = []
        for kind, count in self._kinds:
            if work.decode_sequences and kind.decodes:
                operators.append(
                    self._operator("decode attention", kind.decode_parts(work), kind.decode_work(work), count)
                )
            if work.chunks or not kind.decodes:
                operators.append(self._operator(kind.name, kind.prefill_parts(work), kind.prefill_work(work), count))
        return operators

    def _operator(self, name: str, parts: Parts, work: tuple[float, float], count: int) -> Operator:
        flops, hbm_bytes = work
        return Operator(name, count, flops * count, hbm_bytes * count, parts.times(count), self._dtype)


def _kind(shape: Attention | LatentAttention | LinearAttention, use: Use) -> Kind:
    if isinstance(shape, LinearAttention):
        return LinearKind(shape, use)
    if isinstance(shape, LatentAttention):
        return LatentKind(shape, use)
    return GroupedKind(shape, use)
