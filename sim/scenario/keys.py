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
    "chunked_prefill_size": "engine.max_batched_tokens",
    "max_running_requests": "engine.max_sequences",
    "context_length": "engine.max_model_len",
    "mem_fraction_static": "engine.gpu_memory_utilization",
    "page_size": "engine.block_tokens",
    "disable_radix_cache": "engine.prefix_caching",
    "disable_overlap_schedule": "engine.async_scheduling",
    "disable_cuda_graph": "engine.cuda_graphs",
    "enable_mixed_chunk": "engine.mixed_chunk",
    "schedule_policy": "engine.policy",
    "enable_priority_preemption": "engine.priority_preemption",
    "max_num_tokens": "engine.max_batched_tokens",
    "max_batch_size": "engine.max_sequences",
    "max_seq_len": "engine.max_model_len",
    "tokens_per_block": "engine.block_tokens",
    "free_gpu_memory_fraction": "engine.gpu_memory_utilization",
    "kv_cache_free_gpu_memory_fraction": "engine.gpu_memory_utilization",
    "enable_block_reuse": "engine.prefix_caching",
    "enable_chunked_context": "engine.chunked_prefill",
    "disable_overlap_scheduler": "engine.async_scheduling",
    "capacity_scheduler_policy": "engine.capacity_policy",
    "context_chunking_policy": "engine.chunking_policy",
    "n_parallel": "engine.max_sequences",
    "n_batch": "engine.max_batched_tokens",
    "ctx_size": "engine.kv_blocks",
    "cache_prompt": "engine.prefix_caching",
    "tensor_parallel_size": "deployment.tensor_parallel",
    "pipeline_parallel_size": "deployment.pipeline_parallel",
    "data_parallel_size": "deployment.data_parallel",
    "enable_expert_parallel": "deployment.expert_parallel",
    "tp_size": "deployment.tensor_parallel",
    "pp_size": "deployment.pipeline_parallel",
    "dp_size": "deployment.data_parallel",
    "ep_size": "deployment.expert_parallel",
    "moe_expert_parallel_size": "deployment.expert_parallel",
}
"""The engines' own flags (vLLM, SGLang, TensorRT-LLM, llama.cpp), with underscores or dashes, in ``engine`` or
``deployment``.
"""

NEGATED = {
    "no_enable_prefix_caching",
    "no_enable_chunked_prefill",
    "no_scheduler_reserve_full_isl",
    "no_async_scheduling",
    "enforce_eager",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "disable_overlap_scheduler",
    "disable_cuda_graph",
}
"""Aliases that say the opposite of the key they stand for."""

_LORA = (f"LoRA {NOT_YET}", "leave it out: adapters cost neither time nor memory here")
_DISAGGREGATION = (f"disaggregated serving {NOT_YET}", "use deployment.replicas: each does prefill and decode")
_ATTENTION_DP = (
    "says how data-parallel ranks share tensor_parallel's GPUs; here GPUs are tensor x pipeline x data parallel",
    "write the ranks as data_parallel, and the GPUs of one of them as tensor_parallel",
)

REFUSED_KEYS: dict[str, tuple[str, str]] = {
    "engine.num_speculative_tokens": (
        "is part of speculative",
        "write speculative: {method: ngram, tokens: 3, acceptance: 0.5}",
    ),
    "engine.lora": _LORA,
    "engine.enable_lora": _LORA,
    "engine.lora_modules": _LORA,
    "engine.max_loras": _LORA,
    "engine.max_lora_rank": _LORA,
    "traffic.lora": _LORA,
    "lora": _LORA,
    "engine.enable_dp_attention": _ATTENTION_DP,
    "deployment.enable_dp_attention": _ATTENTION_DP,
    "engine.enable_attention_dp": _ATTENTION_DP,
    "deployment.enable_attention_dp": _ATTENTION_DP,
    "deployment.prefill": _DISAGGREGATION,
    "deployment.decode": _DISAGGREGATION,
}
"""Keys the design names that cannot be had yet: the problem, and what to do instead."""

REFUSED_VALUES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "traffic.arrivals.format": (
        ("sharegpt",),
        "a list of lengths has no times of arrivals",
        "give arrivals of another process, and traffic.lengths: {path: lengths.csv}",
    ),
}
"""Values the design names that cannot be had yet, the problem, and what to do instead."""
