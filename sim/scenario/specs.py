"""The scenario a user writes, as frozen, validated specs. Field names are the YAML's; units are SI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from sim.scenario.quantities import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Fraction,
    PerSecond,
    PositiveSeconds,
    Seconds,
    Version,
    Warmup,
)

MOST_TOKENS = 10_000_000
MOST_REQUESTS = 100_000_000
Positive = Annotated[int, Field(gt=0)]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]
Concurrency = Annotated[int, Field(gt=0, le=1_000_000)]
WeightDType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
PeakDType = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"]
KvDType = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8"]


class Spec(BaseModel):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)


class AbstractModel(Spec):
    """A model known by its size alone: weights, no attention, no KV."""

    parameters: Annotated[float, Field(gt=0)]
    weight_dtype: WeightDType = "bf16"


class HardwareOverride(Spec):
    """A profile with figures replaced, for what-ifs: ``{profile: h100-sxm, hbm_bytes_per_s: 5 TB/s}``."""

    profile: str
    peak_flops_per_s: dict[PeakDType, FlopsPerSecond] = {}
    hbm_bytes_per_s: BytesPerSecond | None = None
    memory_bytes: Bytes | None = None
    host_slowdown: Annotated[float, Field(gt=0)] | None = None


class EngineSpec(Spec):
    """The serving engine; every None follows the version's default. ``usage`` picks which of its default tables."""

    name: Literal["vllm"] = "vllm"
    version: Version | None = None
    usage: Literal["server", "offline"] = "server"
    weight_dtype: WeightDType | None = None
    kv_dtype: KvDType = "auto"
    max_batched_tokens: Positive | None = None
    max_sequences: Positive | None = None
    max_model_len: Positive | None = None
    block_tokens: Positive | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_blocks: Annotated[int, Field(gt=1)] | None = None
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    long_prefill_threshold: Annotated[int, Field(ge=0)] | None = None
    policy: Literal["fcfs", "priority"] | None = None
    async_scheduling: bool | None = None
    cuda_graphs: bool | None = None
    reserve_full_prompt: bool | None = None
    watermark: Annotated[float, Field(ge=0, lt=1)] | None = None


class DeploymentSpec(Spec):
    """How many GPUs and how they are shared. Pipeline, data and expert parallelism are not built yet: 1 each."""

    replicas: Annotated[int, Field(gt=0, le=10_000)] = 1
    tensor_parallel: Annotated[int, Field(gt=0, le=1024)] = 1
    pipeline_parallel: Literal[1] = 1
    data_parallel: Literal[1] = 1
    expert_parallel: Literal[1] = 1
    router: Literal["round-robin", "random", "least-outstanding", "power-of-two"] = "round-robin"


class Poisson(Spec):
    process: Literal["poisson"]
    rate: PerSecond
    max_concurrency: Concurrency | None = None


class Gamma(Spec):
    """Gamma gaps: ``cv`` is their coefficient of variation, ``burstiness`` = 1 / cv^2; exactly one of the two."""

    process: Literal["gamma"]
    rate: PerSecond
    cv: Annotated[float, Field(gt=0)] | None = None
    burstiness: Annotated[float, Field(gt=0)] | None = None
    max_concurrency: Concurrency | None = None


class Constant(Spec):
    process: Literal["constant"]
    rate: PerSecond
    max_concurrency: Concurrency | None = None


class Burst(Spec):
    process: Literal["burst"]
    max_concurrency: Concurrency | None = None


class Closed(Spec):
    """``concurrency`` clients; each sends its next request when its last one ends."""

    process: Literal["closed"]
    concurrency: Concurrency


class Trace(Spec):
    """Recorded arrivals and lengths. ``time_scale`` multiplies every gap (0.5: twice the rate)."""

    process: Literal["trace"]
    path: str
    format: Literal["auto", "azure", "table"] = "auto"
    time_scale: Annotated[float, Field(gt=0)] = 1.0
    max_concurrency: Concurrency | None = None


Arrivals = Annotated[Poisson | Gamma | Constant | Burst | Closed | Trace, Field(discriminator="process")]


class Fixed(Spec):
    distribution: Literal["fixed"]
    value: Tokens


class Uniform(Spec):
    """Integers from ``low`` to ``high``, both included."""

    distribution: Literal["uniform"]
    low: Tokens
    high: Tokens


class Normal(Spec):
    """Rounded, then clipped to [low, high]."""

    distribution: Literal["normal"]
    mean: Annotated[float, Field(gt=0)]
    std: Annotated[float, Field(ge=0)]
    low: Tokens = 1
    high: Tokens | None = None


class LogNormal(Spec):
    """``mean`` is the distribution's own mean; its width is ``sigma`` (of the logarithm) or ``p99``; exactly one."""

    distribution: Literal["lognormal"]
    mean: Annotated[float, Field(gt=0)]
    p99: Annotated[float, Field(gt=0)] | None = None
    sigma: Annotated[float, Field(ge=0)] | None = None
    low: Tokens = 1
    high: Tokens | None = None


class Empirical(Spec):
    """Lengths drawn with replacement from a column of a CSV, JSONL or Parquet file."""

    distribution: Literal["empirical"]
    path: str
    column: str


def _bare_length(value: Any) -> Any:
    """A bare integer is a fixed length."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"distribution": "fixed", "value": value}
    return value


Lengths = Annotated[
    Annotated[Fixed | Uniform | Normal | LogNormal | Empirical, Field(discriminator="distribution")],
    BeforeValidator(_bare_length),
]


class SharedPrefix(Spec):
    """The first ``tokens`` of every prompt come from one of ``groups`` shared prompts; they add to prompt_tokens."""

    tokens: Tokens
    groups: Annotated[int, Field(gt=0, le=1_000_000)] = 1


class TrafficSpec(Spec):
    """Who sends what and when. ``requests`` or ``duration`` ends the load; a trace may end it itself."""

    arrivals: Arrivals
    requests: Annotated[int, Field(gt=0, le=MOST_REQUESTS)] | None = None
    duration: PositiveSeconds | None = None
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    max_output_tokens: Tokens | None = None
    shared_prefix: SharedPrefix | None = None
    priorities: dict[int, Annotated[float, Field(gt=0)]] | None = None
    """Weights of priority values (lower is more important); needs ``policy: priority``."""


class SloSpec(Spec):
    """What every request should meet; a None bounds nothing. ``attainment`` is the share of requests that must."""

    ttft: PositiveSeconds | None = None
    tpot: PositiveSeconds | None = None
    e2e: PositiveSeconds | None = None
    attainment: Fraction = 0.99


class RooflineCost(Spec):
    """``ideal``: datasheet peaks and no overheads."""

    model: Literal["roofline"] = "roofline"
    efficiency: Literal["calibrated", "ideal"] = "calibrated"


class LinearCost(Spec):
    """prefill_step_s x (any prefill) + prefill tokens x prefill_s_per_token + (any decode) x step_s
    + decodes x step_s_per_sequence + contexts x step_s_per_context_token."""

    model: Literal["linear"]
    prefill_step_s: Seconds = 0.0
    prefill_s_per_token: Seconds = 0.0
    step_s: Seconds = 0.0
    step_s_per_sequence: Seconds = 0.0
    step_s_per_context_token: Seconds = 0.0


Cost = Annotated[RooflineCost | LinearCost, Field(discriminator="model")]


class MeasureSpec(Spec):
    """What counts. ``warmup``: requests (a bare integer) or time (``30 s``) left out at the start; ``drain: false``
    leaves out what is unfinished when the last request has arrived."""

    warmup: Warmup = 0
    drain: bool = True


def _text_or_mapping(value: Any) -> str:
    return "mapping" if isinstance(value, dict | Spec) else "text"


ModelChoice = Annotated[
    Annotated[str, Tag("text")] | Annotated[AbstractModel, Tag("mapping")], Discriminator(_text_or_mapping)
]
HardwareChoice = Annotated[
    Annotated[str, Tag("text")] | Annotated[HardwareOverride, Tag("mapping")], Discriminator(_text_or_mapping)
]


class Scenario(Spec):
    """A whole scenario; relative paths start at the folder of its file."""

    model: ModelChoice
    hardware: HardwareChoice
    engine: EngineSpec = EngineSpec()
    deployment: DeploymentSpec = DeploymentSpec()
    traffic: TrafficSpec
    slo: SloSpec = SloSpec()
    cost: Cost = RooflineCost()
    measure: MeasureSpec = MeasureSpec()
    seed: Annotated[int, Field(ge=0)] = 0


