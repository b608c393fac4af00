"""Settings that a source does not put in its table but publishes otherwise: the launch recipes of its harness.

InferenceX (set ``p3``; SemiAnalysisAI/InferenceX, benchmarks/*.sh of October 2025 to February 2026) launches every
engine by a script per model and GPU. What those scripts say of the token budget, the KV cache and the scheduler
follows from engine, model, GPU, lengths and concurrency, never from a single run. What a row itself states goes before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.study.validation.cases import Case

Settings = dict[str, Any]
"""Keys of a scenario's ``engine``."""
INFERENCEX = "p3"
QUANTISED = ("fp8", "nvfp4")
"""Checkpoints that ModelOpt quantised; they state kv_cache_quant_algo FP8, which TensorRT-LLM follows."""


def recipe(case: Case) -> Settings:
    """What is known of an engine's launch beyond the row."""
    rules = INFERENCEX_RECIPES if case.set == INFERENCEX else ELSEWHERE
    found = rules.get(case.engine)
    return found(case) if found else {}


def _is(case: Case, family: str) -> bool:
    return case.model.startswith(family)


def inferencex_vllm(case: Case) -> Settings:
    """``async-scheduling``, no prefix caching, 8,192 tokens a step; an FP8 KV cache for Llama on H200 and B200, and for
    gpt-oss on B200. Hopper's servers take as many sequences as there are clients, Blackwell's 512.

    On H100 this departs from the published script, which asks for an FP8 cache: the runs of October 2025 queue and
    preempt as 16-bit pools do (2 GPUs, 64 clients, 1,024 in, 8,192 out: 31 s to the first token, where an FP8 pool
    gives 0.4 s and a 16-bit one 30 s). It was decided by those rows, so it is no prediction of them.
    """
    blackwell = case.gpu.startswith("b")
    fp8_kv = blackwell or (_is(case, "llama") and not case.gpu.startswith("h100"))
    return {
        "async_scheduling": True,
        "prefix_caching": False,
        "max_batched_tokens": max(8192, case.concurrency or 1) if blackwell else 8192,
        "max_sequences": 512 if blackwell else case.concurrency,
        **({"kv_dtype": "fp8"} if fp8_kv else {}),
    }


def inferencex_trtllm(case: Case) -> Settings:
    """No block reuse. Llama: 16,384 tokens a step, and below 8 GPUs at 1,024 in and out prompts wait up to 20 steps to
    be batched. gpt-oss: 20,000 tokens, an FP8 KV cache on B200 alone. DeepSeek: prompt, clients and 64 tokens more,
    rounded up to 64.

    Versions of Llama's scripts state either 16,384 tokens or max_seq_len; rows at 64 clients decided for the former.
    """
    if _is(case, "gpt-oss"):
        kv = {"kv_dtype": "fp8"} if case.gpu.startswith("b") else {}
        return {"prefix_caching": False, "max_batched_tokens": 20_000, "gpu_memory_utilization": 0.85, **kv}
    if _is(case, "llama"):
        return {"prefix_caching": False, "kv_dtype": "fp8", "max_batched_tokens": 16_384, **_batch_wait(case)}
    sequences = -(-(case.concurrency or 1) // case.dp)
    tokens = -(-(round(case.prompt_tokens) + sequences + 64) // 64) * 64
    memory = {"gpu_memory_utilization": 0.75} if case.weight_dtype == "fp8" else {}
    return {"prefix_caching": False, "kv_dtype": "fp8", "max_batched_tokens": tokens, **memory}


def _batch_wait(case: Case) -> Settings:
    """batch_wait_max_tokens_ratio 0.9 and batch_wait_timeout_iters 20."""
    if case.tp == 8 or case.prompt_tokens != 1024 or case.output_tokens != 1024:
        return {}
    return {"batch_wait_max_tokens_ratio": 0.9, "batch_wait_timeout_iters": 20}


def inferencex_sglang(case: Case) -> Settings:
    """No radix cache. FP8: chunks and prefill batches of 32,768 tokens, 0.82 of the memory. NVFP4: chunks of 16,384
    tokens, 0.85. B200: an FP8 KV cache; 128 running requests in FP8 and 256 in NVFP4. H200: 512 at 1,024 in and out,
    else 256.
    """
    fp8, blackwell = case.weight_dtype == "fp8", case.gpu.startswith("b")
    running = (128 if fp8 else 256) if blackwell else (512 if case.prompt_tokens == case.output_tokens else 256)
    return {
        "prefix_caching": False,
        "max_batched_tokens": 32_768 if fp8 else 16_384,
        **({"max_prefill_tokens": 32_768} if fp8 else {}),
        "max_sequences": running,
        "gpu_memory_utilization": 0.82 if fp8 else 0.85,
        **({"kv_dtype": "fp8"} if blackwell else {}),
    }


def trtllm_elsewhere(case: Case) -> Settings:
    """A step takes the default 8,192 tokens, or a whole prompt beside all clients; ModelOpt's checkpoints bring an FP8
    KV cache.
    """
    needed = round(case.prompt_tokens) + (case.concurrency or 0) + 64
    kv = {"kv_dtype": "fp8"} if case.weight_dtype in QUANTISED else {}
    return {"max_batched_tokens": max(8192, needed), **kv}


INFERENCEX_RECIPES: dict[str, Callable[[Case], Settings]] = {
    "vllm": inferencex_vllm,
    "trtllm": inferencex_trtllm,
    "sglang": inferencex_sglang,
}
ELSEWHERE: dict[str, Callable[[Case], Settings]] = {"trtllm": trtllm_elsewhere}
