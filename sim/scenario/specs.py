"""The scenario a user writes, as frozen, validated specs. Field names are the YAML's; units are SI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo

from sim.parallel import Parallelism
from sim.scenario.arrival_specs import Arrivals, Burst, ByClass, Closed, Constant, Gamma, Poisson, Trace
from sim.scenario.delay_specs import Delays, ExponentialDelay, FixedDelay, LogNormalDelay, UniformDelay
from sim.scenario.length_specs import Empirical, Fixed, JointLengths, Lengths, LogNormal, Normal, Uniform
from sim.scenario.protocol_specs import (
    Aiperf,
    Guidellm,
    InferencePerf,
    Llmperf,
    Protocol,
    SglangBench,
    SglangRandom,
    VllmBench,
    VllmRandom,
)
from sim.scenario.quantities import (
    REAL,
    WHOLE,
    Acceptance,
    Bytes,
    BytesPerSecond,
    Flag,
    FlopsPerSecond,
    Fraction,
    Parameters,
    Seconds,
    Version,
    Warmup,
    Weights,
)
from sim.scenario.session_specs import Cancellation, Client, FanOut, SessionsSpec, ToolCalls
from sim.scenario.slo_spec import SloSpec
from sim.scenario.spec import MOST_REQUESTS, MOST_TOKENS, Concurrency, Positive, Spec, Tokens
from sim.scenario.traffic_specs import ClassSpec, SharedPrefix, TrafficSpec, ZipfPopularity
from sim.scenario.varying_specs import Diurnal, Mmpp, Piecewise, Ramp, Spikes, Varying

__all__ = [
    "MOST_REQUESTS",
    "MOST_TOKENS",
    "AbstractModel",
    "Aiperf",
    "Arrivals",
    "Burst",
    "ByClass",
    "Cancellation",
    "ClassSpec",
    "Client",
    "Closed",
    "Constant",
    "Cost",
    "Delays",
    "DeploymentSpec",
    "Diurnal",
    "Empirical",
    "EngineSpec",
    "ExponentialDelay",
    "FanOut",
    "Fixed",
    "FixedDelay",
    "Gamma",
    "Guidellm",
    "HardwareChoice",
    "HardwareOverride",
    "InferencePerf",
    "JointLengths",
    "KvDType",
    "Lengths",
    "LinearCost",
    "Llmperf",
    "LogNormal",
    "LogNormalDelay",
    "MeasureSpec",
    "Mmpp",
    "ModelChoice",
    "Normal",
    "PeakDType",
    "Piecewise",
    "Poisson",
    "Policy",
    "Protocol",
    "Ramp",
    "RooflineCost",
    "Scenario",
    "SessionsSpec",
    "SglangBench",
    "SglangRandom",
    "SharedPrefix",
    "SloSpec",
    "Spec",
    "SpeculativeSpec",
    "Spikes",
    "ToolCalls",
    "Trace",
    "TrafficSpec",
    "Uniform",
    "UniformDelay",
    "Varying",
    "VllmBench",
    "VllmRandom",
    "WeightDType",
    "ZipfPopularity",
]

Degree = Annotated[int, Field(gt=0, le=1024), WHOLE]
WeightDType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
PeakDType = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"]
Policy = Literal["fcfs", "priority", "lpm", "dfs-weight", "lof", "random", "hrrn", "shortest-prefill-first"]
KvDType = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8"]


class AbstractModel(Spec):
    """A model known by its size alone: weights, no attention, no KV."""

    parameters: Parameters
    """How many, such as 8e9 or ``8 B``."""
    weight_dtype: WeightDType = "bf16"
    """Of every weight."""


class HardwareOverride(Spec):
    """A profile with figures replaced, for what-ifs: ``{profile: h100-sxm, hbm_bytes_per_s: 5 TB/s}``."""

    profile: str
    """A device's name, or a path to a profile."""
    peak_flops_per_s: dict[PeakDType, FlopsPerSecond] = {}  # noqa: RUF012 - frozen, and pydantic copies it
    """Dense peaks by dtype."""
    hbm_bytes_per_s: BytesPerSecond | None = None
    """Memory bandwidth."""
    memory_bytes: Bytes | None = None
    """Memory of one GPU."""
    host_slowdown: Annotated[float, Field(gt=0, le=1e6), REAL] | None = None
    """Host overheads are multiplied by this."""


class SpeculativeSpec(Spec):
    """Speculative decoding: ``tokens`` are drafted after each step, and the next one verifies them.

    vLLM's ``speculative_config`` with its num_speculative_tokens and model says the same.
    """

    method: Literal["draft-model", "ngram", "mtp"]
    """Who drafts: a smaller model, a look-up in the text so far, or the model's multi-token-prediction layers."""
    tokens: Annotated[int, Field(gt=0, le=64), WHOLE]
    """Drafted per step and request: k."""
    acceptance: Acceptance
    """Chance that a draft is accepted, given that those before it were: one for all positions, or one for each."""
    draft_model: str | None = None
    """A preset, or a path to a Hugging Face config.json, of draft-model."""

    @property
    def by_position(self) -> tuple[float, ...]:
        """Acceptance of each position."""
        return self.acceptance if isinstance(self.acceptance, tuple) else (self.acceptance,) * self.tokens


class EngineSpec(Spec):
    """The serving engine; every None follows the version's default. ``usage`` picks which of its default tables."""

    name: Literal["vllm", "sglang", "trtllm", "sarathi", "orca", "static", "llama.cpp"] = "vllm"
    """Whose scheduler: an engine's, or a paper's (orca, static, sarathi)."""
    version: Version | None = None
    """A text, in quotes; blank is the newest. One without a record uses the newest not above it."""
    usage: Literal["server", "offline"] = "server"
    """vLLM's defaults differ between its API server and offline use."""
    weight_dtype: WeightDType | None = None
    """What if the weights were quantised: replaces the checkpoint's dtype in linear layers."""
    kv_dtype: KvDType = "auto"
    """Of the KV cache; auto is the model's."""
    max_batched_tokens: Tokens | None = None
    """Tokens a step may process; in SGLang, those of a prefill chunk."""
    max_prefill_tokens: Tokens | None = None
    """Prompt tokens of one prefill batch (SGLang)."""
    max_sequences: Concurrency | None = None
    """Requests that run at once."""
    max_model_len: Tokens | None = None
    """Prompt and output tokens of the longest request."""
    block_tokens: Tokens | None = None
    """Tokens of one KV block."""
    gpu_memory_utilization: Fraction | None = None
    """Share of GPU memory the engine takes; in SGLang, for weights and KV; in TensorRT-LLM, of what weights leave."""
    kv_blocks: Annotated[int, Field(gt=1, le=1_000_000_000), WHOLE] | None = None
    """KV blocks of a replica; replaces the computed capacity."""
    chunked_prefill: Flag | None = None
    """Whether a prompt may be spread over several steps."""
    prefix_caching: Flag | None = None
    """Whether KV blocks of equal prompt beginnings are shared."""
    long_prefill_threshold: Annotated[int, Field(ge=0, le=MOST_TOKENS), WHOLE] | None = None
    """Longer prompts are cut into chunks of this many tokens; 0 cuts none."""
    policy: Policy | None = None
    """Who goes first: by arrival, by priority, or as SGLang orders its queue (lpm: by longest cached prefix)."""
    priority_preemption: Flag | None = None
    """Whether a more important request may take a running one's place (SGLang, policy priority)."""
    capacity_policy: Literal["guaranteed-no-evict", "max-utilization", "static-batch", "prefill-first"] | None = None
    """Who may run, by the KV blocks that are left (TensorRT-LLM)."""
    chunking_policy: Literal["fcfs", "equal-progress"] | None = None
    """How chunked prompts share a step (TensorRT-LLM)."""
    batch_wait_timeout_iters: Annotated[int, Field(ge=0, le=1_000_000), WHOLE] | None = None
    """Iterations that prompts wait to be batched while others generate (TensorRT-LLM)."""
    batch_wait_max_tokens_ratio: Annotated[float, Field(ge=0, le=1), REAL] | None = None
    """They wait no longer once a step would have this share of its token budget (TensorRT-LLM)."""
    schedule_conservativeness: Annotated[float, Field(gt=0, le=1000), REAL] | None = None
    """Above 1, more is reserved for what running requests may still generate (SGLang)."""
    mixed_chunk: Flag | None = None
    """Whether decodes join the steps that prefill (SGLang)."""
    ignore_eos: Flag | None = None
    """Whether requests are known to run to their length, so that all of it is reserved (SGLang)."""
    scheduler_recv_interval: Positive | None = None
    """New requests are taken in every so many steps (SGLang)."""
    async_scheduling: Flag | None = None
    """Whether a step is planned while the one before it runs."""
    cuda_graphs: Flag | None = None
    """Whether decode batches run as captured graphs, padded to their sizes."""
    reserve_full_prompt: Flag | None = None
    """Whether a prompt is admitted only if KV blocks for all of it are free."""
    watermark: Annotated[float, Field(ge=0, lt=1), REAL] | None = None
    """Share of KV blocks kept free when requests are admitted."""
    speculative: SpeculativeSpec | None = None
    """Drafts that are verified several at a time."""


def _all_ways(value: Any, info: ValidationInfo) -> Any:
    """In vLLM a flag says only whether experts are split: then over all GPUs of a pipeline stage."""
    if not isinstance(value, bool):
        return value
    return info.data.get("tensor_parallel", 1) * info.data.get("data_parallel", 1) if value else 1


class DeploymentSpec(Spec):
    """How many GPUs and how they are shared: a replica has tensor x pipeline x data parallel ones."""

    replicas: Annotated[int, Field(gt=0, le=10_000), WHOLE] = 1
    """Copies of the engine, each with its own queue and KV cache."""
    tensor_parallel: Degree = 1
    """GPUs that each layer is split over."""
    pipeline_parallel: Degree = 1
    """Stages that the layers are split into, one after the other."""
    data_parallel: Degree = 1
    """Ranks with a scheduler and a KV cache of their own, which share the experts."""
    expert_parallel: Annotated[Degree, BeforeValidator(_all_ways, json_schema_input_type=Degree | bool)] = 1
    """Ways the experts are split: divides tensor x data parallel; ``true`` (vLLM's flag) is as many as that."""
    router: Literal["round-robin", "random", "least-outstanding", "power-of-two", "session", "prefix", "weighted"] = (
        "round-robin"
    )
    """How requests are spread over replicas: session keeps one on its replica, prefix looks for the longest cached
    beginning of the prompt."""
    weights: Weights | None = None
    """Of each replica, for the weighted router: their shares of the requests."""

    @property
    def parallel(self) -> Parallelism:
        """How the GPUs of a replica share the work."""
        return Parallelism(
            tensor=self.tensor_parallel,
            pipeline=self.pipeline_parallel,
            data=self.data_parallel,
            expert=self.expert_parallel,
        )


class RooflineCost(Spec):
    """``ideal``: datasheet peaks and no overheads."""

    model: Literal["roofline"] = "roofline"
    efficiency: Literal["calibrated", "ideal"] = "calibrated"


class LinearCost(Spec):
    """prefill_step_s x (any prefill) + prefill tokens x prefill_s_per_token + (any decode) x step_s
    + decodes x step_s_per_sequence + contexts x step_s_per_context_token. With speculation every draft to verify is a
    decode more, and a step that decodes takes tokens x draft_pass_s to draft.
    """

    model: Literal["linear"]
    prefill_step_s: Seconds = 0.0
    prefill_s_per_token: Seconds = 0.0
    step_s: Seconds = 0.0
    step_s_per_sequence: Seconds = 0.0
    step_s_per_context_token: Seconds = 0.0
    draft_pass_s: Seconds = 0.0


def _roofline_by_default(value: Any) -> Any:
    """``cost: {efficiency: ideal}`` needs no model."""
    return {"model": "roofline", **value} if isinstance(value, dict) and "model" not in value else value


Cost = Annotated[
    Annotated[RooflineCost | LinearCost, Field(discriminator="model")], BeforeValidator(_roofline_by_default)
]


class MeasureSpec(Spec):
    """What counts. ``warmup``: requests (a bare integer) or time (``30 s``) left out at the start; ``drain: false``
    leaves out what is unfinished when the last request has arrived.
    """

    warmup: Warmup = 0
    drain: Flag = True


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
    """A preset, a path to a Hugging Face config.json, or {parameters, weight_dtype}."""
    hardware: HardwareChoice
    """A device, a path to a profile, or {profile, ...} with figures replaced."""
    engine: EngineSpec = EngineSpec()
    deployment: DeploymentSpec = DeploymentSpec()
    traffic: TrafficSpec
    slo: SloSpec = SloSpec()
    cost: Cost = RooflineCost()
    measure: MeasureSpec = MeasureSpec()
    metrics: Literal["vllm", "sglang", "guidellm", "aiperf", "genai-perf", "inference-perf", "llmperf"] = "vllm"
    """Whose definitions of TTFT, TPOT, ITL and E2E the summary follows; tables keep vLLM's."""
    seed: Annotated[int, Field(ge=0, lt=2**63), WHOLE] = 0
    """Of all random streams; the same scenario and seed give the same tables."""
