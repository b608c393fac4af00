"""TensorRT-LLM's defaults as data."""

from __future__ import annotations

from sim.engine.versions.rules import EngineRules, one_row
from sim.hardware import HostOverheads

HOST = HostOverheads(
    step_s=0.7e-3,
    sequence_s=5.7e-6,
    layer_gap_s=7.2e-6,
    prefill_layer_s=10e-6,
    request_latency_s=6e-3,
    request_serial_s=1.3e-3,
    source="fitted to public serving measurements of TensorRT-LLM on H100, H200 and B200 hosts; the parts trade "
    "against one another (step 0.5-0.8 ms, sequence 6-18 us, layer gap 5-14 us; request 6-140 ms, by load generator); "
    "not calibrated on this host",
)

V1_0 = EngineRules(
    engine="trtllm",
    version="1.0",
    scheduler="trtllm",
    source="TensorRT-LLM 1.0, capacity and micro-batch schedulers of the C++ batch manager",
    settings=frozenset(
        {
            "max_batched_tokens",
            "gpu_memory_utilization",
            "chunked_prefill",
            "prefix_caching",
            "async_scheduling",
            "capacity_policy",
            "chunking_policy",
            "batch_wait_timeout_iters",
            "batch_wait_max_tokens_ratio",
        }
    ),
    batch_defaults=one_row(8192, 2048),
    block_tokens=32,
    chunked_prefill=False,
    prefix_caching=True,
    async_scheduling=True,
    memory_share="of-free-after-load",
    refuses_long_prompts=True,
    host=HOST,
)

TRTLLM: tuple[EngineRules, ...] = (V1_0,)
