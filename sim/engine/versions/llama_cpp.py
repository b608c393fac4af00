"""llama.cpp's server as data."""

from __future__ import annotations

from dataclasses import replace

from sim.engine.versions.rules import EngineRules, one_row
from sim.engine.versions.vllm import HOST
from sim.work import BandwidthShare

LLAMA_CPP = EngineRules(
    engine="llama.cpp",
    version="",
    scheduler="llama.cpp",
    source="llama.cpp's server, builds of 2025 and 2026",
    settings=frozenset({"max_batched_tokens", "prefix_caching"}),
    batch_defaults=one_row(2048, 4),
    block_tokens=1,
    chunked_prefill=True,
    prefix_caching=True,
    gpu_memory_utilization=1.0,
    divides_pool=True,
    bandwidth_shares=(
        BandwidthShare("Ampere", 1.2e12, 0.51),
        BandwidthShare("Hopper", 1.2e12, 0.69),
        BandwidthShare(None, 0.0, 0.93),
    ),
    kernels="llama.cpp has its own: in public decode measurements (2024) they reach 0.51 (A100), 0.69 (H100 PCIe) and "
    "0.93 (GDDR cards) of the memory bandwidth, as is taken here; its prompts have not been compared",
    host=replace(
        HOST,
        step_s=0.0,
        sequence_s=0.0,
        layer_gap_s=113e-6,
        prefill_layer_s=0.0,
        source="113 us per layer and step, fitted to public llama.cpp decode measurements (2024); the path of "
        "a request is vLLM's, for want of measurements",
    ),
)
