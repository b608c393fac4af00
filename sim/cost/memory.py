"""How much KV cache an engine finds room for at start-up, term by term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from sim.cost.dtypes import ACTIVATION_BYTES
from sim.errors import DoesNotFit
from sim.hardware import HardwareProfile
from sim.models.drafts import Draft
from sim.models.memory import (
    KvGroups,
    index_bytes_per_token,
    kv_bytes_per_request,
    kv_bytes_per_token,
    kv_dtype_bytes,
    kv_groups,
    layer_kv_bytes_per_token,
    legal_tensor_parallel,
    weight_bytes_per_gpu,
    windows,
)
from sim.models.spec import Attention, DenseFfn, LatentAttention, ModelSpec
from sim.work import MemoryShare

GIB = 2**30
FRAMEWORK_BYTES = 0.3 * GIB
"""CUDA context, cuBLAS workspaces and allocator slack: what vLLM's logs call non-torch memory."""
COLLECTIVE_BYTES = 0.7 * GIB
"""NCCL channels and custom all-reduce buffers, with more than one GPU."""
GRAPH_BYTES = 0.8 * GIB
"""CUDA graphs of the default capture sizes; vLLM's start-up log reports 0.5 to 1 GiB for models of 7B to 70B."""
SMALLEST_POOL_TOKENS = 64
"""With room for more than this, it is the blocks that are too large."""
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


def activation_bytes(model: ModelSpec, tensor_parallel: int, max_batched_tokens: int, max_sequences: int) -> float:
    """Peak activations of the profiling run: the widest layer over a full token budget, or sampling a full batch."""
    width = 0.0
    for layer in set(model.layers):
        inner = 0.0
        if isinstance(layer.ffn, DenseFfn):
            inner = layer.ffn.matrices * layer.ffn.intermediate / tensor_parallel
        elif layer.ffn is not None:
            per_token = layer.ffn.experts_per_token * (
                layer.ffn.matrices * layer.ffn.expert_intermediate / tensor_parallel + model.hidden
            )
            inner = per_token + layer.ffn.matrices * layer.ffn.shared_intermediate / tensor_parallel
        if isinstance(layer.attention, Attention | LatentAttention):
            value_dim = layer.attention.value_head_dim
            inner = max(inner, 3 * layer.attention.query_heads * value_dim / tensor_parallel)
        width = max(width, inner)
    layer_bytes = max_batched_tokens * (width + RESIDUAL_COPIES * model.hidden) * ACTIVATION_BYTES
    return max(layer_bytes, max_sequences * model.vocabulary * SAMPLER_BYTES_PER_LOGIT)


def kv_budget(
    model: ModelSpec,
    profile: HardwareProfile,
    *,
    tensor_parallel: int,
    gpu_memory_utilization: float,
    max_batched_tokens: int,
    max_sequences: int,
    graphs_counted: bool,
    share: MemoryShare,
    draft: Draft | None = None,
) -> KvBudget:
    """What one GPU has left. Raises nothing: ``kv_bytes`` may be negative.

    A share of what was free before loading leaves its rest to activations and graphs, so they are not counted again.
    """
    weights = weight_bytes_per_gpu(model, tensor_parallel)
    framework = FRAMEWORK_BYTES + (COLLECTIVE_BYTES if tensor_parallel > 1 else 0.0)
    in_rest = share == "of-free-before-load"
    activations = 0.0 if in_rest else activation_bytes(model, tensor_parallel, max_batched_tokens, max_sequences)
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
        draft_weight_bytes=0 if draft is None else draft.weight_bytes_per_gpu(tensor_parallel),
    )


def has_kv(model: ModelSpec) -> bool:
    """Whether requests hold anything that could run out."""
    return bool(model.layers)


def kv_capacity(
    model: ModelSpec,
    profile: HardwareProfile,
    *,
    tensor_parallel: int,
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
    """KV blocks of one replica; None for a model without KV.

    ``reserved_blocks``: those that no request gets. ``window_groups``: whether the engine shares its pool between full
    and windowed layers; else every block is charged what it costs a request of ``request_tokens``. ``kv_blocks``
    overrides the computed number, which is ``most_blocks`` where more would fit. A block holds the ``draft``'s KV of
    its tokens beside the target's, as in vLLM, which keeps both in one block table. Raises DoesNotFit, with the numbers
    and the tensor parallelism that would fit, where the weights alone are too much.
    """
    budget_at = partial(
        kv_budget,
        model,
        profile,
        gpu_memory_utilization=gpu_memory_utilization,
        max_batched_tokens=max_batched_tokens,
        max_sequences=max_sequences,
        graphs_counted=graphs_counted,
        share=share,
        draft=draft,
    )
    if not has_kv(model):
        _check_weights_alone(model, profile, tensor_parallel, gpu_memory_utilization)
        return None
    groups = kv_groups(model) if window_groups or not windows(model) else None
    per_request = kv_bytes_per_request(model, request_tokens, tensor_parallel, kv_dtype)
    bytes_per_block = per_request / request_tokens * block_tokens
    if groups is not None:
        per_layer = layer_kv_bytes_per_token(groups.attention, tensor_parallel, kv_dtype_bytes(kv_dtype, model))
        bytes_per_block = groups.layers * per_layer * block_tokens
    draft_bytes = 0.0 if draft is None else draft.kv_bytes_per_token(request_tokens, tensor_parallel, kv_dtype)
    tables = _tables(groups, request_tokens, block_tokens)
    bytes_per_block += draft_bytes * block_tokens / float(tables)
    uniform = per_request == request_tokens * (
        kv_bytes_per_token(model, tensor_parallel, kv_dtype, window=None) + index_bytes_per_token(model)
    )
    budget = None
    if kv_blocks is None:
        budget = budget_at(tensor_parallel=tensor_parallel)
        kv_blocks = int(max(0.0, budget.kv_bytes) // bytes_per_block)
        if kv_blocks <= reserved_blocks and budget.kv_bytes > bytes_per_block / block_tokens * SMALLEST_POOL_TOKENS:
            raise DoesNotFit(
                f"a block of {block_tokens:,} tokens takes {bytes_per_block / GIB:.1f} GiB, and only "
                f"{budget.kv_bytes / GIB:.1f} GiB are left for KV",
                "use a smaller block_tokens",
            )
        if kv_blocks <= reserved_blocks:
            raise _too_large(model, profile, tensor_parallel, budget, budget_at)
        kv_blocks = kv_blocks if most_blocks is None else min(kv_blocks, most_blocks)
    return KvCapacity(
        blocks=kv_blocks,
        block_tokens=block_tokens,
        bytes_per_block=bytes_per_block,
        tokens=kv_blocks * block_tokens // tables,
        request_tokens=request_tokens,
        uniform=uniform,
        budget=budget,
        groups=(None,) if groups is None else groups.windows,
        reserved_blocks=reserved_blocks,
        draft_bytes_per_token=draft_bytes,
    )


def _tables(groups: KvGroups | None, request_tokens: int, block_tokens: int) -> Fraction:
    """Blocks a request of so many tokens holds over all block tables, for each block of its own tokens."""
    if groups is None or groups.windows == (None,):
        return Fraction(1)
    whole = -(-request_tokens // block_tokens)
    held = sum(whole if window is None else min(whole, -(-window // block_tokens) + 1) for window in groups.windows)
    return Fraction(held, whole)


def _check_weights_alone(model: ModelSpec, profile: HardwareProfile, tensor_parallel: int, utilization: float) -> None:
    need, have = weight_bytes_per_gpu(model, tensor_parallel), profile.memory_bytes * utilization
    if need > have:
        more = [ranks for ranks in (2, 4, 8) if tensor_parallel < ranks <= most_devices(profile)]
        ranks = next((ranks for ranks in more if weight_bytes_per_gpu(model, ranks) <= have), None)
        cure = f"use tensor_parallel: {ranks}" if ranks else "use a larger device, or smaller weights (fp8, int4)"
        raise DoesNotFit(
            f"{model.name} needs {need / GIB:.1f} GiB for weights, and {profile.name} offers {have / GIB:.1f} GiB", cure
        )


def _too_large(
    model: ModelSpec,
    profile: HardwareProfile,
    tensor_parallel: int,
    budget: KvBudget,
    budget_at: Callable[..., KvBudget],
) -> DoesNotFit:
    fits = [
        ranks
        for ranks in legal_tensor_parallel(model, most_devices(profile))
        if ranks > tensor_parallel and budget_at(tensor_parallel=ranks).kv_bytes > GIB
    ]
    gpus = f"{tensor_parallel} x {profile.name}"
    weight_bytes = budget.weight_bytes + budget.draft_weight_bytes
    problem = (
        f"{model.name} does not fit on {gpus}: each GPU offers {budget.usable_bytes / GIB:.1f} GiB "
        f"(gpu_memory_utilization {SHARE_OF[budget.share]} {budget.memory_bytes / GIB:.1f} GiB); "
        f"weights take {weight_bytes / GIB:.1f}, activations {budget.activation_bytes / GIB:.1f}, "
        f"graphs and framework {(budget.graph_bytes + budget.framework_bytes) / GIB:.1f} GiB: "
        f"{_verdict(budget.kv_bytes)}"
    )
    if fits:
        return DoesNotFit(problem, f"use tensor_parallel: {fits[0]}")
    return DoesNotFit(
        problem,
        f"no tensor_parallel that the links of {profile.name} join is enough: use smaller weights "
        "(weight_dtype: fp8 or int4), or a device with more memory",
    )


def _verdict(kv_bytes: float) -> str:
    if kv_bytes > -0.05 * GIB:
        return "no room is left for KV blocks"
    return f"{-kv_bytes / GIB:.1f} GiB too much"


def most_devices(profile: HardwareProfile) -> int:
    """Devices that tensor parallelism can join, by the profile's links and measured collectives."""
    return max([1, *profile.efficiency.all_reduce])


def longest_request_tokens(model: ModelSpec, capacity: KvCapacity, tensor_parallel: int, kv_dtype: str) -> int:
    """The longest context one request can hold in the whole pool."""
    if capacity.uniform:
        return capacity.usable_blocks * capacity.block_tokens
    room = capacity.usable_blocks * capacity.bytes_per_block
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        draft_bytes = middle * capacity.draft_bytes_per_token
        if kv_bytes_per_request(model, middle, tensor_parallel, kv_dtype) + draft_bytes <= room:
            low = middle
        else:
            high = middle - 1
    return low


def bandwidth_bound_tokens_per_s(model: ModelSpec, profile: HardwareProfile, tensor_parallel: int = 1) -> float:
    """Tokens per second of one stream that reads every weight once per token: no decode of a dense model is faster."""
    return profile.hbm_bytes_per_s / weight_bytes_per_gpu(model, tensor_parallel)
