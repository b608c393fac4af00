"""What a model is to a serving simulator: layers, their parameters, and what a request leaves in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention of one layer; keys and values grow with the context up to ``window_tokens``."""

    query_heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window_tokens: int | None = None
    """Tokens a query can see; None sees all. Chunked local attention counts as a window of its chunk."""
    shares_kv: bool = False
    """Reuses an earlier layer's keys and values: no KV of its own."""
    parameters: int
    """Projections, biases, Q/K norms, sinks: everything of the layer's attention, exactly."""
    output_gate: bool = False
    """The query projection is twice as wide: its second half gates the output (Qwen3-Next)."""
    keys_are_values: bool = False
    """No value projection: values are the keys before their norm and positions; both are cached (Gemma 4)."""
    norms_full_qk: bool = False
    """Normalises Q and K over all heads: one more all-reduce per layer under tensor parallelism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent per token, on every rank."""

    query_heads: int
    query_lora_rank: int | None
    kv_lora_rank: int
    rope_head_dim: int
    nope_head_dim: int
    value_head_dim: int
    parameters: int
    """All but the indexer's."""
    index_parameters: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    index_topk_tokens: int | None = None
    """Sparse attention's indexer (DeepSeek-V3.2, GLM-5): its keys are cached beside the latent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """A layer with a fixed state per request: Mamba-2, gated delta net. No KV that grows."""

    kind: Literal["mamba2", "gated-delta-net", "lightning"]
    projection_parameters: int
    """Weights of the GEMMs (in and out projections)."""
    parameters: int
    heads: int
    key_heads: int | None = None
    """Heads of queries and keys, where values have more of them (grouped as in GQA)."""
    key_dim: int
    """Per head: Mamba's state size N."""
    value_dim: int
    conv_state_elements: int
    recurrent_state_elements: int
    recurrent_state_fp32: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFfn:
    """A feed-forward block every token passes."""

    intermediate: int
    matrices: Literal[2, 3]
    """3 with a gate (SwiGLU), 2 without."""
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeFfn:
    """A routed feed-forward block: ``experts_per_token`` of ``experts``, plus shared experts every token passes."""

    experts: int
    experts_per_token: int
    expert_intermediate: int
    matrices: Literal[2, 3]
    expert_parameters: int
    """Weights of ONE routed expert."""
    expert_bias_parameters: int = 0
    """Its biases, which stay in 16 bits."""
    shared_intermediate: int
    """Width of all shared experts (or a dense block beside the experts) together; 0 without."""
    shared_parameters: int
    router_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """The dtype of each kind of tensor in the checkpoint; scales are counted by ``models.dtypes``."""

    attention: DType
    dense_ffn: DType
    experts: DType
    shared_experts: DType
    router: DType
    embedding: DType
    lm_head: DType
    norms: DType
    scale_block: int | None = None
    """Weights sharing one scale, where the format leaves it open (int4 group size, fp8 block edge)."""
    zero_points: bool = False
    """int4 groups store a zero point beside their scale (AWQ, GPTQ); symmetric ones do not."""
    attention_out: DType | None = None
    """Of the attention's output projection; None: as ``attention``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; either half may be absent (Nemotron-H layers have one of the two)."""

    attention: Attention | LatentAttention | LinearAttention | None
    ffn: DenseFfn | MoeFfn | None
    norm_parameters: int
    weights: WeightFormat | None = None
    """Of a layer that a mixed checkpoint stores in another format than most; None: the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only language model.

    ``layers`` is in order of depth (pipeline stages cut it). An abstract model (``abstract_parameters`` set, no
    layers) has weights only: no attention, no KV; it serves back-of-envelope arithmetic.
    """

    name: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied_embeddings: bool
    other_parameters: int
    """Final norm, learned positions, biases of the head: what is in no layer and no embedding table."""
    weights: WeightFormat
    activation_dtype: DType
    """Dtype the model computes in when weights are not quantised: the checkpoint's torch_dtype."""
    max_positions: int | None
    kv_dtype: DType | None = None
    """Dtype the checkpoint was calibrated to cache keys and values in; None: the activation's."""
    abstract_parameters: int | None = None
    architecture: str = ""
    source: str = ""
    """Where the figures come from: a file, or the preset's source."""
    mtp_layers: int = 0
    """Multi-token-prediction layers of the checkpoint: in no figure of the model itself."""
    notes: tuple[str, ...] = field(default=())
    """What a user should know: parts left out (vision tower, MTP layer)."""
