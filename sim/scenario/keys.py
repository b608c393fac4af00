"""Other names of keys, and keys that are refused by name."""

from __future__ import annotations

from typing import Any

NOT_YET = "is not built yet"

ALIASES: dict[str, str] = {
    "max_num_batched_tokens": "engine.max_batched_tokens",
    "max_num_seqs": "engine.max_sequences",
    "block_size": "engine.block_tokens",
    "kv_cache_dtype": "engine.kv_dtype",
    "quantization": "engine.weight_dtype",
    "num_gpu_blocks_override": "engine.kv_blocks",
    "enable_prefix_caching": "engine.prefix_caching",
    "no_enable_prefix_caching": "engine.prefix_caching",
    "enable_chunked_prefill": "engine.chunked_prefill",
    "no_enable_chunked_prefill": "engine.chunked_prefill",
    "enforce_eager": "engine.cuda_graphs",
    "long_prefill_token_threshold": "engine.long_prefill_threshold",
    "scheduling_policy": "engine.policy",
    "scheduler_reserve_full_isl": "engine.reserve_full_prompt",
    "no_async_scheduling": "engine.async_scheduling",
    "tensor_parallel_size": "deployment.tensor_parallel",
    "pipeline_parallel_size": "deployment.pipeline_parallel",
    "data_parallel_size": "deployment.data_parallel",
}
"""vLLM's own flags, with underscores or dashes, in ``engine`` or ``deployment``."""

NEGATED = {"no_enable_prefix_caching", "no_enable_chunked_prefill", "enforce_eager", "no_async_scheduling"}
"""Aliases that say the opposite of the key they stand for."""

REFUSED_KEYS: dict[str, str] = {
    "engine.speculative": f"speculative decoding {NOT_YET}; leave it out",
    "engine.speculative_config": f"speculative decoding {NOT_YET}; leave it out",
    "engine.scheduler_recv_interval": f"SGLang's receive interval {NOT_YET}; leave it out",
    "engine.lora": f"LoRA {NOT_YET}; leave it out",
    "engine.enable_lora": f"LoRA {NOT_YET}; leave it out",
    "deployment.prefill": f"disaggregated serving {NOT_YET}; use replicas that do both",
    "deployment.decode": f"disaggregated serving {NOT_YET}; use replicas that do both",
    "traffic.sessions": f"sessions of several turns {NOT_YET}; use shared_prefix for common prompts",
    "traffic.classes": f"classes of traffic {NOT_YET}; run one scenario per class",
    "traffic.client": f"the client's network and tokenisation {NOT_YET}; the engine's own request latency is in the roofline model",
    "metrics": f"other tools' metric definitions {NOT_YET}; figures follow vllm bench serve",
}

REFUSED_VALUES: dict[str, tuple[tuple[Any, ...], str]] = {
    "engine.name": (("sglang", "trtllm", "orca", "static", "sarathi", "llama.cpp"), f"this engine {NOT_YET}; use vllm"),
    "deployment.router": (("session", "prefix", "weighted"), f"this router {NOT_YET}; use round-robin, random, least-outstanding or power-of-two"),
    "traffic.arrivals.process": (("ramp", "diurnal"), f"this process {NOT_YET}; use poisson, gamma, constant, burst, closed or trace"),
    "traffic.arrivals.format": (
        (
            "burstgpt", "mooncake", "mooncake-delta", "agentic-mooncake", "weka", "ragpulse", "servegen", "sharegpt",
            "llmservingsim",
        ),
        f"this format {NOT_YET}; convert it to a table of arrival_s, prompt_tokens, output_tokens",
    ),
}
"""Values the design names that cannot be had yet, and what to do instead."""

ONE_FOR_NOW = {
    "deployment.pipeline_parallel": "pipeline parallelism",
    "deployment.data_parallel": "data parallelism",
    "deployment.expert_parallel": "expert parallelism",
}
