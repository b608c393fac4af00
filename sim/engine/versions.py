"""What differs between vLLM releases, as data: one record of rules and defaults per version that was read.

Read from the releases' own sources (wheels 0.9.2, 0.11.2, 0.14.1, 0.19.1, 0.25.1, 0.33.0) and, for 0.32, from its
recorded decisions. Where a change lies between two releases that were read, the older rule is kept until the newer one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sim.errors import RidgelineError
from sim.hardware import HostOverheads

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefaults:
    """Token and sequence budgets of one step, for devices with at least ``memory_gib``."""

    memory_gib: float
    server_tokens: int
    offline_tokens: int
    sequences: int
    excludes: tuple[str, ...] = ()
    """Devices whose name holds one of these fall through to the next row."""


LARGE = BatchDefaults(memory_gib=70, server_tokens=8192, offline_tokens=16384, sequences=1024, excludes=("a100",))
SMALL = BatchDefaults(memory_gib=0, server_tokens=2048, offline_tokens=8192, sequences=256)
HUGE = BatchDefaults(memory_gib=160, server_tokens=16384, offline_tokens=16384, sequences=1024)

GRAPH_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Batch sizes vLLM captures as CUDA graphs; smaller batches are padded up, larger ones run without a graph."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """One version's rules and defaults; ``notice`` says when another version's record stands in."""

    engine: str
    version: str
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
    async_scheduling: bool
    gpu_memory_utilization: float
    graphs_counted_in_memory: bool
    batch_defaults: tuple[BatchDefaults, ...]
    block_tokens: int = 16
    graph_sizes: tuple[int, ...] = GRAPH_SIZES
    host: HostOverheads = HOST
    notice: str | None = None


V0_9 = EngineRules(
    engine="vllm",
    version="0.9",
    reserve_full_prompt=False,
    unhashed_blocks_first=False,
    budget_returns=False,
    self_preemption_ends_step=True,
    lone_request_ignores_threshold=False,
    unfitting_prompt_is_set_aside=True,
    windows_wait_for_steps=False,
    async_scheduling=False,
    gpu_memory_utilization=0.9,
    graphs_counted_in_memory=False,
    batch_defaults=(LARGE, SMALL),
)
V0_11 = replace(V0_9, version="0.11")
V0_14 = replace(V0_11, version="0.14", async_scheduling=True)
V0_19 = replace(V0_14, version="0.19", reserve_full_prompt=True)
V0_21 = replace(V0_19, version="0.21", graphs_counted_in_memory=True)
V0_25 = replace(V0_21, version="0.25", gpu_memory_utilization=0.92, unhashed_blocks_first=True)
V0_32 = replace(
    V0_25,
    version="0.32",
    budget_returns=True,
    lone_request_ignores_threshold=True,
    unfitting_prompt_is_set_aside=False,
    windows_wait_for_steps=True,
    batch_defaults=(HUGE, replace(LARGE, excludes=("a100", "gb10")), SMALL),
)
V0_33 = replace(V0_32, version="0.33", self_preemption_ends_step=False)

VLLM = (V0_9, V0_11, V0_14, V0_19, V0_21, V0_25, V0_32, V0_33)


def rules_for(name: str, version: str | None) -> EngineRules:
    """The record of a version; blank means the newest, one without a record takes the newest not above it.

    Raises RidgelineError for versions below the first record, whose scheduler (V0) is another one.
    """
    if name != "vllm":
        raise RidgelineError(f"engine {name} has no record of rules\n  cure: use vllm")
    if version is None or not version.strip():
        return VLLM[-1]
    wanted = _numbers(name, version)
    older = [rules for rules in VLLM if _numbers(name, rules.version) <= wanted]
    if not older:
        raise RidgelineError(
            f"{name} {version}: the scheduler before 0.9 (V0) is not built yet\n  cure: use 0.9 or later"
        )
    rules = older[-1]
    if wanted[:2] == _numbers(name, rules.version)[:2]:
        return replace(rules, version=version.strip().removeprefix("v"))
    notice = f"{name} {version} has no record of its own: the rules are those of {rules.version}"
    return replace(rules, notice=notice)


def _numbers(name: str, version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    if match is None:
        raise RidgelineError(f'{name} version {version!r} is not a version\n  cure: write it as "0.33"')
    numbers = tuple(int(part) for part in match.group(1).split("."))
    return numbers if len(numbers) > 1 else (*numbers, 0)
