"""What every engine's record says: its scheduler, its settings, its defaults and its host code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sim.hardware import HostOverheads
from sim.work import BandwidthShare, KernelFactor, MemoryShare

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


class Device(NamedTuple):
    """What defaults depend on."""

    memory_bytes: int
    name: str
    tensor_parallel: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """One version's rules and defaults; ``notice`` says when another version's record stands in."""

    engine: str
    version: str
    """Blank for a scheduler of a paper."""
    scheduler: str
    """Which implementation plans its steps."""
    source: str
    """Where the rules were read."""
    settings: frozenset[str]
    """Keys of ``engine`` that this scheduler has; the few that every engine has are not among them."""
    policies: tuple[str, ...] = ("fcfs",)
    """Orders of its waiting queue, the default first."""
    batch_defaults: tuple[BatchDefaults, ...]
    block_tokens: int = 16
    reserved_blocks: int = 0
    """Blocks of the pool that no request gets."""
    chunked_prefill: bool
    prefix_caching: bool
    async_scheduling: bool = False
    gpu_memory_utilization: float = 0.9
    memory_share: MemoryShare = "of-device"
    """What ``gpu_memory_utilization`` is a share of."""
    graphs_counted_in_memory: bool = False
    divides_pool: bool = False
    """Every one of ``max_sequences`` slots has an equal part of the pool, whoever is in it."""
    shares_pool_between_windows: bool = False
    """Full and windowed layers take blocks from one pool, each kind in tables of its own."""
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes captured as CUDA graphs; smaller batches are padded up, larger ones are not. Empty: none are."""
    host: HostOverheads
    kernel_factors: tuple[KernelFactor, ...] = ()
    """Its kernels that are known to take longer than the measured ones."""
    bandwidth_shares: tuple[BandwidthShare, ...] = ()
    """What its kernels reach of the memory bandwidth: the first that a device fits; empty: as the measured kernels."""
    kernels: str | None = None
    """Why its kernels may differ from the measured ones, which are vLLM's and TensorRT-LLM's."""
    refuses_long_prompts: bool = False
    """Without chunked prefill, a prompt above ``max_batched_tokens`` is refused on arrival."""
    notice: str | None = None

    @property
    def title(self) -> str:
        """Name and version, as people say it."""
        return f"{self.engine} {self.version}".strip()

    def batch(self, device: Device) -> BatchDefaults:
        """The row of default budgets for a device."""
        for row in self.batch_defaults:
            named_out = any(name in device.name.lower() for name in row.excludes)
            if device.memory_bytes >= row.memory_gib * GIB and not named_out:
                return row
        return self.batch_defaults[-1]


def one_row(tokens: int, sequences: int) -> tuple[BatchDefaults, ...]:
    """The same budgets on every device."""
    return (BatchDefaults(memory_gib=0, server_tokens=tokens, offline_tokens=tokens, sequences=sequences),)
