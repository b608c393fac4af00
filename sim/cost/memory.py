"""How much KV cache an engine finds room for at start-up, term by term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from sim.cost.dtypes import ACTIVATION_BYTES
from sim.errors import DoesNotFit
from sim.hardware import HardwareProfile
from sim.hardware.collectives import most_devices, node_devices
from sim.models.drafts import Draft
from sim.models.memory import (
    KvGroups,
    index_bytes_per_token,
    kv_bytes_per_request,
    kv_bytes_per_token,
    kv_dtype_bytes,
    kv_groups,
    layer_kv_bytes_per_token,
    layers_of_block,
    weight_bytes_per_gpu,
    windows,
)
from sim.models.parallel import ONE_GPU, legal_tensor_parallel, stage_layers
from sim.models.spec import Attention, DenseFfn, LatentAttention, ModelSpec
from sim.parallel import Parallelism
from sim.work import MemoryShare

GIB = 2**30
INFINITY = float("inf")
STAGES = (2, 4, 8)
"""Nodes in a pipeline that a cure may propose."""
FRAMEWORK_BYTES = 0.3 * GIB
"""CUDA context, cuBLAS workspaces and allocator slack: what vLLM's logs call non-torch memory."""
COLLECTIVE_BYTES = 0.7 * GIB
"""NCCL channels and custom all-reduce buffers, with more than one GPU."""
GRAPH_BYTES = 0.8 * GIB
"""CUDA graphs of the default capture sizes; vLLM's start-up log reports 0.5 to 1 GiB for models of 7B to 70B."""
SMALLEST_POOL_TOKENS = 64
"""With room for more than this, it is the blocks that are too large."""
MOE_CHUNK_TOKENS = 32 * 1024
"""Of several ranks, vLLM's experts take so many tokens at once (VLLM_FUSED_MOE_CHUNK_SIZE)."""
RESIDUAL_COPIES = 3
"""Hidden states alive at once: input, residual and output of a layer."""
SAMPLER_BYTES_PER_LOGIT = 4 + 4 + 2
"""FP32 logits, their probabilities, and the 16-bit logits they came from."""
SHARE_OF: dict[MemoryShare, str] = {
    "of-device": "of the device's",
    "of-free-before-load": "of what is free before the weights are loaded, of",
    "of-free-after-load": "of what the weights leave free, of",
}
"""How a memory fraction is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBudget:
    """Bytes of one GPU, from what the device offers down to what is left for KV blocks."""

    memory_bytes: int
    usable_bytes: float
    """What the engine's memory fraction leaves it."""
    share: MemoryShare
    """What that is a fraction of."""
    weight_bytes: int
    activation_bytes: float
    graph_bytes: float
    framework_bytes: float
    draft_weight_bytes: int = 0
    """Of the model that drafts (speculation), beside ``weight_bytes``."""

    @property
    def kv_bytes(self) -> float:
        taken = self.weight_bytes + self.activation_bytes + self.graph_bytes + self.framework_bytes
        return self.usable_bytes - taken - self.draft_weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """KV blocks of one replica, and where the figure comes from.

    ``tokens`` is for requests of ``request_tokens``: windows and fixed states make it depend on their length.
    """

    blocks: int
    block_tokens: int
    bytes_per_block: float
    tokens: int
    request_tokens: int
    uniform: bool
    """Every token costs the same: no windows, no fixed state."""
    budget: KvBudget | None
    """None: the scenario set the number of blocks."""
    groups: tuple[int | None, ...] = (None,)
    """Block tables that share the pool, by window (None: full attention)."""
    draft_bytes_per_token: float = 0.0
    """KV of the model that drafts: every block has room for it too."""
    reserved_blocks: int = 0
    """Blocks among ``blocks`` that no request gets (vLLM's null block)."""

    @property
    def usable_blocks(self) -> int:
        return self.blocks - self.reserved_blocks


def activation_bytes(
    model: ModelSpec, parallel: Parallelism, max_batched_tokens: int, max_sequences: int, stage: int | None = None
) -> float:
    """Peak activations of the profiling run: the widest layer over a full token budget, or sampling a full batch.

    Experts work on the tokens of all data-parallel ranks, and their buffers have room for every routed copy of a token
    wherever its expert is (vLLM's ``fused_experts``, which takes them in chunks). Only the last pipeline stage samples.
    """
    tensor_parallel, width = parallel.tensor, 0.0
    ranks = max(1.0, min(parallel.data, MOE_CHUNK_TOKENS / max_batched_tokens))
    first, last = (0, len(model.layers)) if stage is None else stage_layers(model, parallel.pipeline, stage)
    for layer in set(model.layers[first:last]):
        inner = 0.0
        if isinstance(layer.ffn, DenseFfn):
            inner = layer.ffn.matrices * layer.ffn.intermediate / tensor_parallel
        elif layer.ffn is not None:
            per_token = layer.ffn.experts_per_token * (
                layer.ffn.matrices * layer.ffn.expert_intermediate / parallel.expert_tensor + model.hidden
            )
            inner = per_token * ranks + layer.ffn.matrices * layer.ffn.shared_intermediate / tensor_parallel
        if isinstance(layer.attention, Attention | LatentAttention):
            value_dim = layer.attention.value_head_dim
            inner = max(inner, 3 * layer.attention.query_heads * value_dim / tensor_parallel)
        width = max(width, inner)
    layer_bytes = max_batched_tokens * (width + RESIDUAL_COPIES * model.hidden) * ACTIVATION_BYTES
    if stage is not None and stage < parallel.pipeline - 1:
        return layer_bytes
    return max(layer_bytes, max_sequences * model.vocabulary * SAMPLER_BYTES_PER_LOGIT)


def kv_budget(
    model: ModelSpec,
    profile: HardwareProfile,
    *,
    parallel: Parallelism,
    stage: int = 0,
    gpu_memory_utilization: float,
    max_batched_tokens: int,
    max_sequences: int,
    graphs_counted: bool,
    share: MemoryShare,
    draft: Draft | None = None,
) -> KvBudget:
    """What one GPU of a pipeline stage has left. Raises nothing: ``kv_bytes`` may be negative.

    A share of what was free before loading leaves its rest to activations and graphs, so they are not counted again.
    """
    weights = weight_bytes_per_gpu(model, parallel, stage)
    framework = FRAMEWORK_BYTES + (COLLECTIVE_BYTES if parallel.devices > 1 else 0.0)
    in_rest = share == "of-free-before-load"
    activations = 0.0 if in_rest else activation_bytes(model, parallel, max_batched_tokens, max_sequences, stage)
    usable = profile.memory_bytes * gpu_memory_utilization
    if share != "of-device":
        loaded = framework if in_rest else framework + weights + activations
        usable = profile.memory_bytes - (1 - gpu_memory_utilization) * max(0.0, profile.memory_bytes - loaded)
    return KvBudget(
        memory_bytes=profile.memory_bytes,
        usable_bytes=usable,
        share=share,
        weight_bytes=weights,
        activation_bytes=activations,
        graph_bytes=GRAPH_BYTES if graphs_counted and not in_rest else 0.0,
        framework_bytes=framework,
        draft_weight_bytes=draft.weight_bytes_per_gpu(parallel) if draft and stage == parallel.pipeline - 1 else 0,
    )


def has_kv(model: ModelSpec) -> bool:
    """Whether requests hold anything that could run out."""
    return bool(model.layers)


def kv_capacity(
    model: ModelSpec,
    profile: HardwareProfile,
    *,
    parallel: Parallelism,
    kv_dtype: str,
    block_tokens: int,
    request_tokens: int,
    gpu_memory_utilization: float,
    max_batched_tokens: int,
    max_sequences: int,
    graphs_counted: bool,
    share: MemoryShare,
    reserved_blocks: int,
    window_groups: bool,
    kv_blocks: int | None = None,
    most_blocks: int | None = None,
    draft: Draft | None = None,
) -> KvCapacity | None:
    """KV blocks of one replica (of each data-parallel rank); None for a model without KV.

    ``reserved_blocks``: those that no request gets. ``window_groups``: whether the engine shares its pool between full
    and windowed layers; else every block is charged what it costs a request of ``request_tokens``. ``kv_blocks``
    overrides the computed number, which is ``most_blocks`` where more would fit. A block holds the ``draft``'s KV of
    its tokens beside the target's, as in vLLM, which keeps both in one block table. A block lies on every pipeline
    stage, with the KV of its layers: the stage with room for fewest decides. Raises DoesNotFit, with the numbers and a
    parallelism that would fit, where the weights alone are too much.
    """
    if not has_kv(model):
        _check_weights_alone(model, profile, parallel, gpu_memory_utilization)
        return None
    groups = kv_groups(model) if window_groups or not windows(model) else None
    tables = _tables(groups, request_tokens, block_tokens)
    draft_bytes = 0.0 if draft is None else draft.kv_bytes_per_token(request_tokens, parallel.tensor, kv_dtype)

    def block_bytes(at: Parallelism, stage: int) -> float:
        drafts = draft_bytes if stage == at.pipeline - 1 else 0.0
        return _block_bytes(model, groups, at, stage, kv_dtype, request_tokens, block_tokens) + (
            drafts * block_tokens / float(tables)
        )

    def budget_at(at: Parallelism, stage: int) -> KvBudget:
        return kv_budget(
            model,
            profile,
            parallel=at,
            stage=stage,
            gpu_memory_utilization=gpu_memory_utilization,
            max_batched_tokens=max_batched_tokens,
            max_sequences=max_sequences,
            graphs_counted=graphs_counted,
            share=share,
            draft=draft,
        )

    def fewest(at: Parallelism) -> tuple[float, KvBudget, float]:
        """Blocks of the worst stage, its budget and its bytes per block."""
        rooms = [(budget_at(at, stage), block_bytes(at, stage)) for stage in range(at.pipeline)]
        return min(
            ((budget.kv_bytes / size if size else INFINITY, budget, size) for budget, size in rooms),
            key=lambda room: room[0],
        )

    budget, bytes_per_block = None, max(block_bytes(parallel, stage) for stage in range(parallel.pipeline))
    if kv_blocks is None:
        _, budget, bytes_per_block = fewest(parallel)
        kv_blocks = int(max(0.0, budget.kv_bytes) // bytes_per_block)
        if kv_blocks <= reserved_blocks and budget.kv_bytes > bytes_per_block / block_tokens * SMALLEST_POOL_TOKENS:
            raise DoesNotFit(
                f"a block of {block_tokens:,} tokens takes {bytes_per_block / GIB:.1f} GiB, and only "
                f"{budget.kv_bytes / GIB:.1f} GiB are left for KV",
                "use a smaller block_tokens",
            )
        if kv_blocks <= reserved_blocks:
            raise _too_large(model, profile, parallel, budget, lambda at: fewest(at)[1].kv_bytes > GIB)
        kv_blocks = kv_blocks if most_blocks is None else min(kv_blocks, most_blocks)
    return KvCapacity(
        blocks=kv_blocks,
        block_tokens=block_tokens,
        bytes_per_block=bytes_per_block,
        tokens=kv_blocks * block_tokens // tables,
        request_tokens=request_tokens,
        uniform=_uniform(model, parallel.tensor, kv_dtype, request_tokens),
        budget=budget,
        groups=(None,) if groups is None else groups.windows,
        reserved_blocks=reserved_blocks,
        draft_bytes_per_token=draft_bytes,
    )


def _block_bytes(
    model: ModelSpec,
    groups: KvGroups | None,
    parallel: Parallelism,
    stage: int,
    kv_dtype: str,
    request_tokens: int,
    block_tokens: int,
) -> float:
    """What a block takes of one GPU of a stage."""
    layers = stage_layers(model, parallel.pipeline, stage)
    if groups is None:
        per_request = kv_bytes_per_request(model, request_tokens, parallel.tensor, kv_dtype, layers)
        return per_request / request_tokens * block_tokens
    per_layer = layer_kv_bytes_per_token(groups.attention, parallel.tensor, kv_dtype_bytes(kv_dtype, model))
    return layers_of_block(model, groups, layers) * per_layer * block_tokens


def _uniform(model: ModelSpec, tensor_parallel: int, kv_dtype: str, request_tokens: int) -> bool:
    """Every token of a request costs the same."""
    growing = kv_bytes_per_token(model, tensor_parallel, kv_dtype, window=None) + index_bytes_per_token(model)
    return kv_bytes_per_request(model, request_tokens, tensor_parallel, kv_dtype) == request_tokens * growing


def _tables(groups: KvGroups | None, request_tokens: int, block_tokens: int) -> Fraction:
    """Blocks a request of so many tokens holds over all block tables, for each block of its own tokens."""
    if groups is None or groups.windows == (None,):
        return Fraction(1)
    whole = -(-request_tokens // block_tokens)
    held = sum(whole if window is None else min(whole, -(-window // block_tokens) + 1) for window in groups.windows)
    return Fraction(held, whole)


def _check_weights_alone(model: ModelSpec, profile: HardwareProfile, parallel: Parallelism, utilization: float) -> None:
    need, have = weight_bytes_per_gpu(model, parallel), profile.memory_bytes * utilization
    if need > have:
        larger = _next_fit(model, profile, parallel, lambda at: weight_bytes_per_gpu(model, at) <= have)
        cure = f"use {said(larger)}" if larger else "use a larger device, or smaller weights (fp8, int4)"
        raise DoesNotFit(
            f"{model.name} needs {need / GIB:.1f} GiB for weights, and {profile.name} offers {have / GIB:.1f} GiB", cure
        )


def _next_fit(
    model: ModelSpec, profile: HardwareProfile, parallel: Parallelism, fits: Callable[[Parallelism], bool]
) -> Parallelism | None:
    """The least larger tensor parallelism that fits; where none does, pipeline parallelism of nodes beside it."""
    node = node_devices(profile)
    inside = node // (parallel.data * parallel.pipeline)
    degrees = [ranks for ranks in legal_tensor_parallel(model, inside) if ranks >= parallel.tensor]
    ways = [replace(parallel, tensor=ranks) for ranks in degrees if ranks > parallel.tensor]
    if degrees and most_devices(profile) is None and model.layers:
        ways += [replace(parallel, tensor=degrees[-1], pipeline=parallel.pipeline * more) for more in STAGES]
    legal = (_expert_follows(parallel, way) for way in ways if way.pipeline <= len(model.layers) or way.pipeline == 1)
    return next((way for way in legal if fits(way)), None)


def _expert_follows(before: Parallelism, way: Parallelism) -> Parallelism:
    """Experts stay split over all GPUs of a stage where they were."""
    whole = before.expert > 1 and before.expert == before.tensor * before.data
    return replace(way, expert=way.tensor * way.data) if whole else way


def said(parallel: Parallelism) -> str:
    """As a scenario writes it: what is more than 1."""
    degrees = {
        "tensor_parallel": parallel.tensor,
        "pipeline_parallel": parallel.pipeline,
        "data_parallel": parallel.data,
        "expert_parallel": parallel.expert,
    }
    return ", ".join(f"{key}: {degree}" for key, degree in degrees.items() if degree > 1)


def _too_large(
    model: ModelSpec,
    profile: HardwareProfile,
    parallel: Parallelism,
    budget: KvBudget,
    fits: Callable[[Parallelism], bool],
) -> DoesNotFit:
    gpus = f"{parallel.devices} x {profile.name}"
    weight_bytes = budget.weight_bytes + budget.draft_weight_bytes
    problem = (
        f"{model.name} does not fit on {gpus}: each GPU offers {budget.usable_bytes / GIB:.1f} GiB "
        f"(gpu_memory_utilization {SHARE_OF[budget.share]} {budget.memory_bytes / GIB:.1f} GiB); "
        f"weights take {weight_bytes / GIB:.1f}, activations {budget.activation_bytes / GIB:.1f}, "
        f"graphs and framework {(budget.graph_bytes + budget.framework_bytes) / GIB:.1f} GiB: "
        f"{_verdict(budget.kv_bytes)}"
    )
    larger = _next_fit(model, profile, parallel, fits)
    if larger is not None:
        return DoesNotFit(problem, f"use {said(larger)}")
    return DoesNotFit(
        problem,
        f"no parallelism that the links of {profile.name} join is enough: use smaller weights "
        "(weight_dtype: fp8 or int4), or a device with more memory",
    )


def _verdict(kv_bytes: float) -> str:
    if kv_bytes > -0.05 * GIB:
        return "no room is left for KV blocks"
    return f"{-kv_bytes / GIB:.1f} GiB too much"


def longest_request_tokens(model: ModelSpec, capacity: KvCapacity, parallel: Parallelism, kv_dtype: str) -> int:
    """The longest context one request can hold in the whole pool: of the stage where it is shortest."""
    if capacity.uniform:
        return capacity.usable_blocks * capacity.block_tokens
    return min(_longest_of_stage(model, capacity, parallel, stage, kv_dtype) for stage in range(parallel.pipeline))


def _longest_of_stage(model: ModelSpec, capacity: KvCapacity, parallel: Parallelism, stage: int, kv_dtype: str) -> int:
    layers = stage_layers(model, parallel.pipeline, stage)
    room = capacity.usable_blocks * capacity.bytes_per_block
    if parallel.pipeline > 1:
        mean = kv_bytes_per_request(model, capacity.request_tokens, parallel.tensor, kv_dtype, layers)
        room = capacity.usable_blocks * capacity.block_tokens * mean / capacity.request_tokens
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        draft_bytes = middle * capacity.draft_bytes_per_token if stage == parallel.pipeline - 1 else 0.0
        if kv_bytes_per_request(model, middle, parallel.tensor, kv_dtype, layers) + draft_bytes <= room:
            low = middle
        else:
            high = middle - 1
    return low


def bandwidth_bound_tokens_per_s(model: ModelSpec, profile: HardwareProfile, parallel: Parallelism = ONE_GPU) -> float:
    """Tokens per second of one stream that reads every weight once per token: no decode of a dense model is faster.

    Stages read theirs one after the other.
    """
    stages = range(parallel.pipeline)
    return profile.hbm_bytes_per_s / sum(weight_bytes_per_gpu(model, parallel, stage) for stage in stages)
