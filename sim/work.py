"""Where ``engine`` and ``cost`` meet: the work of one engine step, and the time it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Bound = Literal["compute", "memory", "communication", "host"]
MemoryShare = Literal["of-device", "of-free-before-load", "of-free-after-load"]
"""What an engine's memory fraction is a share of: the device's memory; what is free when the process has started
(weights and KV must fit the share, all else the rest); or what is free when the weights are loaded (KV alone).
"""


class PrefillChunk(NamedTuple):
    """Prompt (or recomputed) tokens of one request in one step."""

    tokens: int
    context_tokens: int
    """Tokens of the request already in the KV cache before this chunk."""


class StepWork(NamedTuple):
    """Everything a cost model may know about one engine step of one replica.

    A decode is a sequence that gets its newest token, and with speculation the drafts after it, and samples; everything
    else is a prefill chunk.
    """

    chunks: tuple[PrefillChunk, ...]
    decode_sequences: int
    decode_context_tokens: int
    """Sum over decodes of the tokens each attends to, its own new tokens included."""
    decode_window_tokens: tuple[int, ...] = ()
    """For each sliding window of the model (in the order of ``ModelSpec.windows``): sum of min(context, window)."""
    sampled_sequences: int = 0
    """Rows that reach the LM head: all tokens of decodes, chunks that complete a prompt, and drafts padding those."""
    draft_tokens: int = 0
    """Tokens of decodes beyond one each: drafts to verify."""

    @property
    def prefill_tokens(self) -> int:
        return sum([chunk[0] for chunk in self.chunks])

    @property
    def decode_tokens(self) -> int:
        """Of all decodes together."""
        return self.decode_sequences + self.draft_tokens

    @property
    def tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens


class StepTime(NamedTuple):
    """Seconds one step takes, host and device apart, the device's by what bounds them.

    The device is busy for ``device_s``; the host needs ``host_s`` to schedule, prepare and post-process the step.
    Synchronous engines pay both in turn, asynchronous ones the larger.
    """

    host_s: float
    compute_s: float
    memory_s: float
    communication_s: float
    launch_s: float

    @property
    def device_s(self) -> float:
        return self.compute_s + self.memory_s + self.communication_s + self.launch_s

    @property
    def bound(self) -> Bound:
        """The largest part; kernel launch counts as host, and host counts where it exceeds the device."""
        if self.host_s > self.device_s:
            return "host"
        parts: tuple[tuple[float, Bound], ...] = (
            (self.compute_s, "compute"),
            (self.memory_s, "memory"),
            (self.communication_s, "communication"),
            (self.launch_s, "host"),
        )
        return max(parts, key=lambda part: part[0])[1]


class DecodeTime(NamedTuple):
    """The time of steps that only decode a fixed number of sequences: linear in what they attend to.

    ``*_per_token`` are seconds per token of ``StepWork.decode_context_tokens``; ``windows`` holds (compute, memory)
    seconds per token of each of ``StepWork.decode_window_tokens``.
    """

    host_s: float
    compute_s: float
    compute_s_per_token: float
    memory_s: float
    memory_s_per_token: float
    communication_s: float
    launch_s: float
    windows: tuple[tuple[float, float], ...] = ()

    def at(self, context_tokens: int, window_tokens: tuple[int, ...] = ()) -> StepTime:
        """One such step."""
        compute_s = self.compute_s + self.compute_s_per_token * context_tokens
        memory_s = self.memory_s + self.memory_s_per_token * context_tokens
        if self.windows:
            for (compute_per_token, memory_per_token), tokens in zip(self.windows, window_tokens, strict=False):
                compute_s += compute_per_token * tokens
                memory_s += memory_per_token * tokens
        return tuple.__new__(StepTime, (self.host_s, compute_s, memory_s, self.communication_s, self.launch_s))


class KernelFactor(NamedTuple):
    """What an engine version's kernel takes, times that of the kernels a device was measured with."""

    weight_dtype: str
    """Of the experts: the one kernel whose releases differ so far."""
    architecture: str
    """Devices it holds on."""
    above_tokens: int
    """Steps of more tokens than this."""
    factor: float
    source: str


class BandwidthShare(NamedTuple):
    """What an engine's own kernels reach of the memory bandwidth, in place of the measured kernels' shares."""

    architecture: str | None
    """None: any."""
    above_bytes_per_s: float
    """Devices with more bandwidth than this."""
    share: float


class CostModel(Protocol):
    """Seconds of one step; pure: the same work always takes the same time."""

    def step_time(self, work: StepWork) -> StepTime:
        """Of a step that has the replica (of one data-parallel rank) to itself."""
        ...

    def stage_times(self, work: StepWork) -> tuple[StepTime, ...]:
        """Of each pipeline stage; ``host_s`` is the first one's alone, sends to the next are in ``communication_s``."""
        ...

    def group_time(self, works: Sequence[StepWork]) -> StepTime:
        """Of the step that all data-parallel ranks take together, one work each; an idle rank's is empty."""
        ...

    def group_stage_times(self, works: Sequence[StepWork]) -> tuple[StepTime, ...]:
        """``group_time`` of each pipeline stage."""
        ...

    def decode_time(self, sequences: int) -> DecodeTime | None:
        """Of steps that only decode; what ``step_time`` says of them, to the bit. None: it is not linear."""
        ...
