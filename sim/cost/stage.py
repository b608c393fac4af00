"""A pipeline stage's step, operator by operator: max(FLOPs / peak, bytes / bandwidth), bent by curves."""

from __future__ import annotations

from collections.abc import Sequence

from sim.cost.attention import AttentionCost
from sim.cost.curves import Parts
from sim.cost.device import Device
from sim.cost.operators import Operator, total
from sim.cost.terms import Terms
from sim.hardware import HardwareProfile, HostOverheads
from sim.models.parallel import stage_layers
from sim.models.spec import ModelSpec
from sim.parallel import Parallelism
from sim.work import BandwidthShare, DecodeTime, KernelFactor, StepTime, StepWork


class StageCost:
    """Seconds of a step on the GPUs of one pipeline stage, or (``stage`` None) of all stages in turn.

    What depends on the token count alone is tabulated, so a step costs O(1).
    """

    def __init__(
        self,
        model: ModelSpec,
        profile: HardwareProfile,
        parallel: Parallelism,
        stage: int | None,
        *,
        kv_dtype: str,
        host: HostOverheads | None,
        ideal: bool,
        graph_sizes: tuple[int, ...],
        factors: tuple[KernelFactor, ...] = (),
        shares: tuple[BandwidthShare, ...] = (),
    ) -> None:
        self.model = model
        device = Device(profile, ideal=ideal, factors=factors, shares=shares)
        terms = Terms(model, device, parallel, stage)
        self._token_terms, self._sampled_terms, self._group_terms = (
            terms.of_tokens(),
            terms.of_sampled(),
            terms.of_group(),
        )
        layers = (0, len(model.layers)) if stage is None else stage_layers(model, parallel.pipeline, stage)
        self._attention = AttentionCost(model, device, parallel.tensor, kv_dtype, layers)
        self._graph_sizes = () if ideal else graph_sizes
        self._padded: dict[int, int] = {}
        self._by_tokens: dict[int, Parts] = {}
        self._by_sampled: dict[int, Parts] = {}
        self._by_group: dict[int, Parts] = {}
        self._by_decodes: dict[int, DecodeTime | None] = {}
        depth, slowdown = layers[1] - layers[0], profile.host.slowdown
        self._gap_s = 0.0 if ideal or host is None else host.layer_gap_s * slowdown * depth
        overheads = None if ideal or stage else host
        self._step_s = overheads.step_s * slowdown if overheads else 0.0
        self._sequence_s = overheads.sequence_s * slowdown if overheads else 0.0
        self._prefill_s = overheads.prefill_layer_s * slowdown * len(model.layers) if overheads else 0.0

    def step_time(self, work: StepWork) -> StepTime:
        """Host and device seconds of one step."""
        chunks, decodes = work.chunks, work.decode_sequences
        if decodes and not chunks and not work.draft_tokens:
            time = self.decode_time(decodes)
            if time is not None:
                return time.at(work.decode_context_tokens, work.decode_window_tokens)
        tokens = decodes + work.draft_tokens
        tokens = tokens + sum([chunk[0] for chunk in chunks]) if chunks else self._graph_size(tokens)
        table, head = self._tables(tokens, work.sampled_sequences)
        host_s = self._step_s + self._sequence_s * (decodes + len(chunks)) + (self._prefill_s if chunks else 0.0)
        compute_s, memory_s, communication_s, launch_s = self._attention.parts(work)
        device = (
            table[0] + head[0] + compute_s,
            table[1] + head[1] + memory_s,
            table[2] + head[2] + communication_s,
            table[3] + head[3] + launch_s + self._gap_s,
        )
        return tuple.__new__(StepTime, (host_s, *device))

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

    def group_time(self, works: Sequence[StepWork]) -> StepTime:
        """Host and device seconds of a step that data-parallel ranks take together.

        A rank that is idle runs one token (a dummy pass). Dense parts are those of the rank with most tokens, to which
        vLLM pads the others as far as graphs reach; attention, LM head and host those of the slowest rank in each; the
        experts get the tokens of all ranks, padding included where graphs pad.
        """
        tokens = [max(1, work.tokens) for work in works]
        largest, together = max(tokens), sum(tokens)
        if not any(work.chunks for work in works):
            largest = self._graph_size(largest)
            if largest in self._graph_sizes:
                together = largest * len(works)
        table, head = self._tables(largest, max(work.sampled_sequences for work in works))
        shared = self._group(together)
        attention = max((self._attention.parts(work) for work in works), key=lambda parts: parts.total_s)
        device = [sum(parts) for parts in zip(table, head, shared, attention, strict=True)]
        host_s = max(
            self._step_s
            + self._sequence_s * (work.decode_sequences + len(work.chunks))
            + (self._prefill_s if work.chunks else 0.0)
            for work in works
        )
        return StepTime(host_s, device[0], device[1], device[2], device[3] + self._gap_s)

    def _group(self, tokens: int) -> Parts:
        """What depends on the tokens of all data-parallel ranks together."""
        try:
            return self._by_group[tokens]
        except KeyError:
            parts = self._by_group[tokens] = total([term(tokens) for term in self._group_terms])
            return parts

    def _tables(self, tokens: int, sampled: int) -> tuple[Parts, Parts]:
        """What depends on the token count alone, and the LM head: both worked out once."""
        try:
            table = self._by_tokens[tokens]
        except KeyError:
            table = self._by_tokens[tokens] = total([term(tokens) for term in self._token_terms if tokens])
        try:
            head = self._by_sampled[sampled]
        except KeyError:
            head = self._by_sampled[sampled] = total([term(sampled) for term in self._sampled_terms if sampled])
        return table, head

    def operators(self, work: StepWork) -> list[Operator]:
        """The operators of a step, in order; their parts sum to the device's time less the engine's gaps."""
        tokens = self._graph_size(work.decode_tokens) if not work.chunks else work.tokens
        sampled = work.sampled_sequences
        return [
            *(term(tokens) for term in self._token_terms if tokens),
            *self._attention.operators(work),
            *(term(sampled) for term in self._sampled_terms if sampled),
        ]

    def _graph_size(self, tokens: int) -> int:
        size = self._padded.get(tokens)
        if size is None:
            size = next((size for size in self._graph_sizes if size >= tokens), tokens)
            self._padded[tokens] = size
        return size
