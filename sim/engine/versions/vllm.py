"""What differs between vLLM releases, as data: one record of rules and defaults per version that was read.

Read from the releases' own sources (wheels 0.6.6.post1, 0.9.2, 0.11.2, 0.14.1, 0.19.1, 0.25.1, 0.33.0) and, for 0.32,
from its recorded decisions. Where a change lies between two releases that were read, the older rule is kept until the
newer one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.engine.versions.rules import BatchDefaults, EngineRules, one_row
from sim.hardware import HostOverheads
from sim.work import KernelFactor

LARGE = BatchDefaults(memory_gib=70, server_tokens=8192, offline_tokens=16384, sequences=1024, excludes=("a100",))
SMALL = BatchDefaults(memory_gib=0, server_tokens=2048, offline_tokens=8192, sequences=256)
HUGE = BatchDefaults(memory_gib=160, server_tokens=16384, offline_tokens=16384, sequences=1024)

GRAPH_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Batch sizes V1 captures as CUDA graphs."""
GRAPH_SIZES_V0 = (1, 2, 4, *range(8, 257, 8))

HOST = HostOverheads(
    step_s=2.7e-3,
    sequence_s=38e-6,
    layer_gap_s=12e-6,
    prefill_layer_s=35e-6,
    request_latency_s=3.2e-3,
    request_serial_s=1.9e-3,
    source="fitted to public serving measurements of vLLM 0.11-0.22 on H100, H200 and B200 hosts; the parts trade "
    "against one another (step 1.2-2.7 ms, sequence 14-38 us, layer gap 4-14 us); not calibrated on this host",
)

MXFP4_PREFILL = KernelFactor(
    weight_dtype="mxfp4",
    architecture="Hopper",
    above_tokens=256,
    factor=1.6,
    source="MXFP4 experts prefill slower before 0.24: one factor for gpt-oss-120b on H100 and H200, vLLM 0.11-0.22",
)

SHARED_SETTINGS = frozenset(
    {
        "max_batched_tokens",
        "gpu_memory_utilization",
        "chunked_prefill",
        "prefix_caching",
        "cuda_graphs",
        "watermark",
    }
)
V1_SETTINGS = SHARED_SETTINGS | {
    "usage",
    "long_prefill_threshold",
    "policy",
    "async_scheduling",
    "reserve_full_prompt",
    "speculative",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmV1Rules(EngineRules):
    """What V1's scheduler decides differently from release to release."""

    reserve_full_prompt: bool
    """A waiting request is admitted only if all its known tokens fit the free blocks, not just its first chunk."""
    unhashed_blocks_first: bool
    """Freed blocks without a hash are reused first; before, all went to the tail of the queue."""
    budget_returns: bool
    """Tokens of a victim that was already scheduled in this step go back to the budget (priority policy)."""
    self_preemption_ends_step: bool
    """Under the priority policy, a request that preempts itself ends the running loop."""
    lone_request_ignores_threshold: bool
    """The long-prefill threshold applies only when more than one request is waiting or running."""
    unfitting_prompt_is_set_aside: bool
    """Without chunked prefill, a prompt above the budget is skipped; in later versions it ends admission."""
    windows_wait_for_steps: bool
    """Blocks out of a sliding window are freed when the steps in flight that may still read them are completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmV0Rules(EngineRules):
    """V0's defaults that have no like in V1."""

    watermark: float
    chunks_above_tokens: int
    """Chunked prefill is on where max_model_len is above this."""


V0_6 = VllmV0Rules(
    engine="vllm",
    version="0.6",
    scheduler="vllm-v0",
    source="vLLM 0.6.6.post1, V0 engine",
    settings=SHARED_SETTINGS,
    batch_defaults=one_row(2048, 256),
    chunked_prefill=False,
    prefix_caching=False,
    watermark=0.01,
    chunks_above_tokens=32_768,
    graph_sizes=GRAPH_SIZES_V0,
    host=replace(HOST, source=f"V1's, for want of measurements of V0: {HOST.source}"),
)

V0_9 = VllmV1Rules(
    engine="vllm",
    version="0.9",
    scheduler="vllm-v1",
    source="vLLM 0.9.2, V1 engine",
    settings=V1_SETTINGS,
    policies=("fcfs", "priority"),
    reserved_blocks=1,
    chunked_prefill=True,
    prefix_caching=True,
    reserve_full_prompt=False,
    unhashed_blocks_first=False,
    budget_returns=False,
    self_preemption_ends_step=True,
    lone_request_ignores_threshold=False,
    unfitting_prompt_is_set_aside=True,
    windows_wait_for_steps=False,
    shares_pool_between_windows=True,
    batch_defaults=(LARGE, SMALL),
    graph_sizes=GRAPH_SIZES,
    host=HOST,
    kernel_factors=(MXFP4_PREFILL,),
)
V0_11 = replace(V0_9, version="0.11", source="vLLM 0.11.2, V1 engine")
V0_14 = replace(V0_11, version="0.14", source="vLLM 0.14.1, V1 engine", async_scheduling=True)
V0_19 = replace(V0_14, version="0.19", source="vLLM 0.19.1, V1 engine", reserve_full_prompt=True)
V0_21 = replace(
    V0_19,
    version="0.21",
    source="vLLM 0.19.1, V1 engine, with CUDA graphs taken from the KV budget",
    graphs_counted_in_memory=True,
)
V0_25 = replace(
    V0_21,
    version="0.25",
    source="vLLM 0.25.1, V1 engine",
    gpu_memory_utilization=0.92,
    unhashed_blocks_first=True,
    kernel_factors=(),
)
V0_32 = replace(
    V0_25,
    version="0.32",
    source="vLLM 0.32, V1 engine, as it was recorded",
    budget_returns=True,
    lone_request_ignores_threshold=True,
    unfitting_prompt_is_set_aside=False,
    windows_wait_for_steps=True,
    batch_defaults=(HUGE, replace(LARGE, excludes=("a100", "gb10")), SMALL),
)
V0_33 = replace(V0_32, version="0.33", source="vLLM 0.33.0, V1 engine", self_preemption_ends_step=False)

VLLM: tuple[EngineRules, ...] = (V0_6, V0_9, V0_11, V0_14, V0_19, V0_21, V0_25, V0_32, V0_33)
