"""SGLang's defaults, which follow the memory of the GPU, as data."""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine.versions.rules import GIB, BatchDefaults, Device, EngineRules
from sim.hardware import HostOverheads

MIB = 2**20
GRAPH_SIZES = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), 512)

HOST = HostOverheads(
    step_s=1.1e-3,
    sequence_s=41e-6,
    layer_gap_s=24e-6,
    prefill_layer_s=8e-6,
    request_latency_s=20e-3,
    request_serial_s=1.4e-3,
    source="fitted to public serving measurements of SGLang on H200 and B200 hosts; the parts trade against one "
    "another (step 0.8-1.7 ms, sequence 8-42 us, layer gap 9-24 us; request 18-110 ms, by load generator); not "
    "calibrated on this host",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDefaults:
    """The largest batch captured as a CUDA graph, on devices with at least ``memory_gib``."""

    memory_gib: float
    largest_batch: int
    largest_batch_of_four_gpus: int
    """With a tensor parallelism of 4 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRules(EngineRules):
    """SGLang's memory formula; its ``batch_defaults`` are the tokens of a chunk and the size of the request pool."""

    max_prefill_tokens: int
    graph_defaults: tuple[GraphDefaults, ...]
    reserved_mib: float
    reserved_mib_per_prefill_token: float
    least_prefill_tokens: int
    """The memory kept for a prefill is that of at least so many tokens."""
    reserved_mib_per_graph_sequence: float
    reserved_mib_per_gpu: float
    large_memory_gib: float
    large_reserved_gib: float
    """Devices above ``large_memory_gib`` keep at least this much."""

    def largest_graph(self, device: Device) -> int:
        """Sequences of the largest CUDA graph."""
        rows = self.graph_defaults
        row = next((row for row in rows if device.memory_bytes >= row.memory_gib * GIB), rows[-1])
        return row.largest_batch_of_four_gpus if device.tensor_parallel >= 4 else row.largest_batch

    def static_fraction(self, device: Device, prefill_tokens: int) -> float:
        """``mem_fraction_static``: the share of memory for weights and KV, as the server rounds it."""
        reserved_mib = (
            self.reserved_mib
            + self.reserved_mib_per_prefill_token * max(prefill_tokens, self.least_prefill_tokens)
            + self.reserved_mib_per_graph_sequence * self.largest_graph(device)
            + self.reserved_mib_per_gpu * device.tensor_parallel
        )
        if device.memory_bytes > self.large_memory_gib * GIB:
            reserved_mib = max(reserved_mib, self.large_reserved_gib * 1024)
        return round(1 - reserved_mib * MIB / device.memory_bytes, 3)


def _chunk(memory_gib: float, tokens: int) -> BatchDefaults:
    """2,048 requests: the least the request pool holds, whatever the KV pool."""
    return BatchDefaults(memory_gib=memory_gib, server_tokens=tokens, offline_tokens=tokens, sequences=2048)


def _graphs(memory_gib: float, largest: int, of_four: int | None = None) -> GraphDefaults:
    return GraphDefaults(
        memory_gib=memory_gib, largest_batch=largest, largest_batch_of_four_gpus=largest if of_four is None else of_four
    )


V0_5 = SglangRules(
    engine="sglang",
    version="0.5",
    scheduler="sglang",
    source="SGLang 0.5.23",
    settings=frozenset(
        {
            "max_batched_tokens",
            "max_prefill_tokens",
            "gpu_memory_utilization",
            "chunked_prefill",
            "prefix_caching",
            "policy",
            "async_scheduling",
            "cuda_graphs",
            "schedule_conservativeness",
            "mixed_chunk",
            "ignore_eos",
            "scheduler_recv_interval",
            "priority_preemption",
        }
    ),
    policies=("fcfs", "lpm", "dfs-weight", "lof", "random", "hrrn", "shortest-prefill-first", "priority"),
    batch_defaults=(_chunk(160, 16384), _chunk(60, 8192), _chunk(20, 4096), _chunk(0, 2048)),
    graph_defaults=(_graphs(160, 512), _graphs(60, 256, 512), _graphs(35, 32), _graphs(20, 48), _graphs(0, 8)),
    block_tokens=1,
    chunked_prefill=True,
    prefix_caching=True,
    async_scheduling=True,
    memory_share="of-free-before-load",
    graph_sizes=GRAPH_SIZES,
    max_prefill_tokens=16384,
    reserved_mib=512,
    reserved_mib_per_prefill_token=1.5,
    least_prefill_tokens=2048,
    reserved_mib_per_graph_sequence=2,
    reserved_mib_per_gpu=128,
    large_memory_gib=60,
    large_reserved_gib=10,
    host=HOST,
)

SGLANG: tuple[EngineRules, ...] = (V0_5,)
