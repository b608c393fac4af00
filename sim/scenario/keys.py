"""Other names of keys, and keys and values that are refused by name."""

from __future__ import annotations

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
    "no_scheduler_reserve_full_isl": "engine.reserve_full_prompt",
    "no_async_scheduling": "engine.async_scheduling",
    "speculative_config": "engine.speculative",
    "tensor_parallel_size": "deployment.tensor_parallel",
    "pipeline_parallel_size": "deployment.pipeline_parallel",
    "data_parallel_size": "deployment.data_parallel",
}
"""vLLM's own flags, with underscores or dashes, in ``engine`` or ``deployment``."""

NEGATED = {
    "no_enable_prefix_caching",
    "no_enable_chunked_prefill",
    "no_scheduler_reserve_full_isl",
    "no_async_scheduling",
    "enforce_eager",
}
"""Aliases that say the opposite of the key they stand for."""

_LORA = (f"LoRA {NOT_YET}", "leave it out: adapters cost neither time nor memory here")
_DISAGGREGATION = (f"disaggregated serving {NOT_YET}", "use deployment.replicas: each does prefill and decode")
_EXPERTS = (f"expert parallelism {NOT_YET}", "leave it out: experts are split by tensor_parallel")

REFUSED_KEYS: dict[str, tuple[str, str]] = {
    "engine.num_speculative_tokens": (
        "is part of speculative",
        "write speculative: {method: ngram, tokens: 3, acceptance: 0.5}",
    ),
    "engine.scheduler_recv_interval": (f"a scheduler's receive interval (SGLang) {NOT_YET}", "leave it out"),
    "engine.lora": _LORA,
    "engine.enable_lora": _LORA,
    "engine.lora_modules": _LORA,
    "engine.max_loras": _LORA,
    "engine.max_lora_rank": _LORA,
    "traffic.lora": _LORA,
    "lora": _LORA,
    "engine.enable_expert_parallel": _EXPERTS,
    "deployment.enable_expert_parallel": _EXPERTS,
    "deployment.prefill": _DISAGGREGATION,
    "deployment.decode": _DISAGGREGATION,
    "traffic.sessions": (f"multi-turn traffic {NOT_YET}", "use traffic.shared_prefix for prompts that begin alike"),
    "traffic.classes": (f"traffic of several classes {NOT_YET}", "use traffic.priorities, or one scenario per class"),
    "traffic.client": (f"a client's network and tokenisation {NOT_YET}", "leave it out"),
    "metrics": (
        f"a choice of metric definitions {NOT_YET}",
        "leave it out: figures are defined as vllm bench serve does",
    ),
}
"""Keys the design names that cannot be had yet: the problem, and what to do instead."""

_FORMATS = (
    "burstgpt",
    "mooncake",
    "mooncake-delta",
    "agentic-mooncake",
    "weka",
    "ragpulse",
    "servegen",
    "sharegpt",
    "llmservingsim",
)
REFUSED_VALUES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "engine.name": (
        ("sglang", "trtllm", "orca", "static", "sarathi", "llama.cpp"),
        f"this engine {NOT_YET}",
        "use vllm, whose scheduler most others resemble",
    ),
    "deployment.router": (
        ("session", "prefix", "weighted"),
        f"this router {NOT_YET}",
        "use round-robin, random, least-outstanding or power-of-two",
    ),
    "traffic.arrivals.process": (
        ("ramp", "diurnal"),
        f"this process {NOT_YET}",
        "run several rates (sim sweep), or write the arrivals as a trace",
    ),
    "traffic.arrivals.format": (
        _FORMATS,
        f"this format {NOT_YET}",
        "convert it to a table of arrival_s, prompt_tokens, output_tokens",
    ),
}
"""Values the design names that cannot be had yet, the problem, and what to do instead."""

ONE_FOR_NOW = {
    "deployment.pipeline_parallel": "pipeline parallelism",
    "deployment.data_parallel": "data parallelism",
    "deployment.expert_parallel": "expert parallelism",
}
"""Keys that take 1 alone."""
