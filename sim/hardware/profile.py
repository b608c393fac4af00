"""One accelerator as measured, not as advertised: dense peaks, usable memory, links, and how near kernels come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

PEAK_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
CLOCK_MARGIN = 1.1
"""Kernels may run above the clock a peak is rated at (H100: 1830 rated, 1980 MHz boost), but not by more than this."""

Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Bytes = Annotated[int, Field(gt=0, strict=True)]
Seconds = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Softness = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=True)]
MemoryShare = Annotated[float, Field(gt=0, le=1, strict=True)]
ComputeShare = Annotated[float, Field(gt=0, le=CLOCK_MARGIN, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(gt=0)]


class _Checked:
    """Read from a file, unknown keys are errors and numbers must be numbers; built in code, nothing is checked."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCurve(_Checked):
    """Time of an (m x k) by (k x n) product.

    t = launch + (W^p + C^p)^(1/p); W = bytes / (bandwidth x memory); C = 2 n k (m + pad_tokens)(1 + narrow_columns / n)
    / (peak x compute); p = softness (inf: a sharp ridge).
    """

    launch_s: Seconds
    memory: MemoryShare
    compute: ComputeShare
    pad_tokens: NonNegative = 0.0
    narrow_columns: NonNegative = 0.0
    softness: Softness = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttentionCurve(_Checked):
    """Time of decode attention over a batch, linear in the sum of its contexts.

    t = launch + KV bytes / (bandwidth x memory) x (1 + head_fill / (sequences x kv_heads)) + FLOPs / (peak x compute)
    + per_sequence_s x sequences; ``compute`` None: never bound by it.
    """

    launch_s: Seconds
    memory: MemoryShare
    compute: ComputeShare | None = None
    per_sequence_s: Seconds = 0.0
    head_fill: NonNegative = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillAttentionCurve(_Checked):
    """Time of prefill attention.

    t = launch + causal FLOPs / (peak x compute) x (1 + ramp_tokens / L)(1 + head_ramp / (sequences x heads))
    + q, k, v, o bytes / (bandwidth x memory).
    """

    launch_s: Seconds
    memory: MemoryShare
    compute: ComputeShare
    ramp_tokens: NonNegative = 0.0
    head_ramp: NonNegative = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeCurve(_Checked):
    """Routed experts: t = launch + (W^3 + C^3)^(1/3) over the distinct experts hit.

    ``skew`` scales the tokens in E(1 - (1 - k/N)^(tokens x skew)); ``pad_tokens`` are tile padding per hit expert.
    """

    launch_s: Seconds
    memory: MemoryShare
    compute: ComputeShare
    pad_tokens: NonNegative = 0.0
    skew: Positive = 1.0
    expert_parallel_imbalance: NonNegative = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCurve(_Checked):
    """t = latency_s + bytes / bytes_per_s for one all-reduce over a given number of devices."""

    latency_s: Seconds
    bytes_per_s: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass(_Checked):
    """A whole pass of a small decoder, measured on the device and predicted by its curves.

    ``prefill``: ``tokens`` of each of ``sequences`` prompts; ``decode``: one token of each over ``context_tokens``.
    """

    phase: Literal["prefill", "decode"]
    sequences: Count
    tokens: Count
    context_tokens: Annotated[int, Field(ge=0)] = 0
    measured_s: Positive
    predicted_s: Positive

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency(_Checked):
    """How near this device's kernels come to its peaks, with where the curves come from.

    Keys: ``gemm`` and ``moe`` by weight dtype (a dtype without a row takes bf16's), attention by head size (the nearest
    is taken), ``all_reduce`` by number of devices.
    """

    source: str
    date: str
    calibrated: Flag
    """False: borrowed from the architecture or a sibling, not measured on this device."""
    gemm: Mapping[str, GemmCurve]
    decode_attention: Mapping[Count, DecodeAttentionCurve]
    prefill_attention: Mapping[Count, PrefillAttentionCurve]
    moe: Mapping[str, MoeCurve]
    all_reduce: Mapping[Count, CollectiveCurve]
    elementwise_memory: MemoryShare
    """Share of bandwidth that norms, activations and other elementwise kernels reach."""
    mixed_step_decode: Positive = 1.0
    """Factor on decode attention in a step that also prefills."""
    error: Mapping[str, NonNegative] = field(default_factory=dict)
    """Median absolute relative error of each fit (0.08 is 8 %), where it was measured."""
    passes: tuple[ForwardPass, ...] = ()
    """Forward passes that no fit has seen, where they were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(_Checked):
    """A connection between devices; bandwidths per device, one direction."""

    name: str
    bytes_per_s: Positive
    pair_bytes_per_s: Positive
    """What two devices can exchange directly: less than ``bytes_per_s`` on meshes without a switch."""
    devices: Count
    """Devices it joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(_Checked):
    """A list price per device and hour; indicative, sellers differ by a factor of 2 or 3."""

    usd_per_hour: Positive
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOverheads(_Checked):
    """What an engine version's host code adds, on the reference host (seconds).

    A step occupies the host for ``step_s + sequence_s x sequences`` (+ ``prefill_layer_s x layers`` when it prefills)
    and adds ``layer_gap_s x layers`` to the device. A request reaches the scheduler ``request_latency_s`` after it was
    sent, and the front end takes in one request per ``request_serial_s``.
    """

    step_s: Seconds
    sequence_s: Seconds
    layer_gap_s: Seconds
    prefill_layer_s: Seconds
    request_latency_s: Seconds
    request_serial_s: Seconds
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile(_Checked):
    """The CPU beside the device, relative to the host the engines' overheads were measured on."""

    slowdown: Positive
    """Engine host times are multiplied by this; 1 = the reference host."""
    source: str
    date: str | None = None
    calibrated: Flag = False
    """True: measured on this host with a serving engine."""
    overheads: Mapping[str, HostOverheads] = field(default_factory=dict)
    """By engine: what its host code adds here, in place of what its version's record says; times ``slowdown`` too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile(_Checked):
    """One device. Peaks are dense, per dtype (``fp32 tf32 bf16 fp16 fp8 int8 fp4``), with fp32 accumulation."""

    name: str
    product: str
    vendor: str
    architecture: str
    peak_flops_per_s: Mapping[str, Positive]
    hbm_bytes_per_s: Positive
    memory_bytes: Bytes
    """What the runtime offers a process, not the printed size."""
    l2_bytes: Bytes | None
    scale_up: Link | None
    pcie_bytes_per_s: Positive | None
    network_bytes_per_s: Positive | None
    power_w: Positive | None
    price: Price | None
    efficiency: Efficiency
    host: HostProfile
    sources: Mapping[str, str]
    """Where each figure comes from, by key."""
    notes: tuple[str, ...] = ()

    def ridge_flops_per_byte(self, dtype: str) -> float:
        """Arithmetic intensity above which a kernel of ``dtype`` is bound by compute."""
        return self.peak_flops_per_s[dtype] / self.hbm_bytes_per_s
