"""From what the scenario says to an engine's settings: one function per scheduler fills in what it leaves open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sim.engine.cache.rounding import blocks_for
from sim.engine.schedulers import settings_class
from sim.engine.settings import EngineSettings
from sim.engine.speculation import SpeculationSettings
from sim.engine.versions import Device, EngineRules, SglangRules, VllmV0Rules, VllmV1Rules
from sim.engine.versions.papers import WATERMARK
from sim.scenario.specs import EngineSpec

EVERYWHERE = ("max_sequences", "max_model_len", "block_tokens")
"""Keys with a default that every engine has."""


class Resolved(NamedTuple):
    """Settings, which of them the version decided, and what follows from the device."""

    settings: EngineSettings
    defaults_taken: dict[str, object]
    gpu_memory_utilization: float
    graph_sizes: tuple[int, ...]
    most_kv_blocks: int | None = None
    """KV blocks the engine wants at most, however many fit."""


class Given(NamedTuple):
    """What defaults follow from."""

    rules: EngineRules
    spec: EngineSpec
    device: Device
    length: int
    """The longest request: the scenario's, or else the model's."""
    seed: int

    def resolved(self, defaults: dict[str, Any], facts: dict[str, Any] | None = None) -> Resolved:
        """Settings from the scenario, or else from ``defaults`` (by the scenario's keys); ``facts`` go as they are.

        A default that the scenario could not change for this scheduler is not among those taken.
        """
        rules, spec = self.rules, self.spec
        every = {
            "max_batched_tokens": rules.batch(self.device).server_tokens,
            "max_sequences": rules.batch(self.device).sequences,
            "max_model_len": self.length,
            "block_tokens": rules.block_tokens,
            "chunked_prefill": rules.chunked_prefill,
            "prefix_caching": rules.prefix_caching,
            "policy": rules.policies[0],
            "async_scheduling": rules.async_scheduling,
            **defaults,
        }
        taken = {name: default for name, default in every.items() if getattr(spec, name) is None}
        chosen = {name: taken[name] if name in taken else getattr(spec, name) for name in every}
        if "scheduler_recv_interval" in chosen:
            chosen["recv_interval"] = chosen.pop("scheduler_recv_interval")
        return Resolved(
            settings_class(rules.scheduler)(**chosen, **(facts or {})),
            {name: default for name, default in taken.items() if name in rules.settings or name in EVERYWHERE},
            spec.gpu_memory_utilization or rules.gpu_memory_utilization,
            rules.graph_sizes,
        )


def settings_for(
    rules: EngineRules,
    spec: EngineSpec,
    *,
    memory_bytes: int,
    device_name: str,
    max_model_len: int,
    tensor_parallel: int = 1,
    seed: int = 0,
) -> Resolved:
    """Fill in what the scenario leaves open. ``max_model_len``: the model's own, unless the scenario sets one.

    ``seed``: of an engine that draws lots, and of what drafts are accepted. Raises RidgelineError for settings that the
    engine refuses.
    """
    device = Device(memory_bytes, device_name, tensor_parallel)
    return FILL[rules.scheduler](Given(rules, spec, device, spec.max_model_len or max_model_len, seed))


def _vllm_v1(given: Given) -> Resolved:
    """In the order of vLLM's EngineArgs: without chunked prefill a step must take a whole prompt; and no budget is
    larger than what the others can use.
    """
    rules, spec = given.rules, given.spec
    assert isinstance(rules, VllmV1Rules)
    speculation = _speculation(spec, given.seed)
    row = rules.batch(given.device)
    sequences = spec.max_sequences or row.sequences
    tokens = spec.max_batched_tokens
    if tokens is None:
        tokens = row.server_tokens if spec.usage == "server" else row.offline_tokens
        if spec.chunked_prefill is False:
            tokens = max(tokens, given.length)
        tokens = min(tokens, sequences * given.length)
    return given.resolved(
        {
            "max_batched_tokens": tokens,
            "max_sequences": min(sequences, tokens),
            "long_prefill_threshold": 0,
            "reserve_full_prompt": rules.reserve_full_prompt,
            "watermark": 0.0,
            "async_scheduling": rules.async_scheduling and speculation is None,
        },
        {"speculation": speculation},
    )


def _speculation(spec: EngineSpec, seed: int) -> SpeculationSettings | None:
    chosen = spec.speculative
    if chosen is None:
        return None
    return SpeculationSettings(method=chosen.method, tokens=chosen.tokens, acceptance=chosen.by_position, seed=seed)


def _vllm_v0(given: Given) -> Resolved:
    """Long contexts turn chunked prefill on; without it a step must take a whole prompt."""
    rules, chunked = given.rules, given.spec.chunked_prefill
    assert isinstance(rules, VllmV0Rules)
    if chunked is None:
        chunked = given.length > rules.chunks_above_tokens
    tokens = rules.batch(given.device).server_tokens
    return given.resolved(
        {
            "max_batched_tokens": tokens if chunked else max(tokens, given.length),
            "chunked_prefill": chunked,
            "watermark": rules.watermark,
        }
    )


def _sglang(given: Given) -> Resolved:
    """Budgets, graphs and the share of memory follow the device's memory."""
    rules, spec = given.rules, given.spec
    assert isinstance(rules, SglangRules)
    found = given.resolved(
        {
            "max_prefill_tokens": rules.max_prefill_tokens,
            "schedule_conservativeness": 1.0,
            "mixed_chunk": False,
            "ignore_eos": False,
            "scheduler_recv_interval": 1,
            "priority_preemption": False,
        },
        {"seed": given.seed},
    )
    chunk_tokens = found.settings.max_batched_tokens
    if not found.settings.chunked_prefill:
        chunk_tokens = spec.max_prefill_tokens or rules.max_prefill_tokens
    largest = rules.largest_graph(given.device)
    return found._replace(
        gpu_memory_utilization=spec.gpu_memory_utilization or rules.static_fraction(given.device, chunk_tokens),
        graph_sizes=tuple(size for size in rules.graph_sizes if size <= largest),
    )


def _trtllm(given: Given) -> Resolved:
    return given.resolved(
        {
            "capacity_policy": "guaranteed-no-evict",
            "chunking_policy": "fcfs",
            "batch_wait_timeout_iters": 0,
            "batch_wait_max_tokens_ratio": 0.0,
        }
    )


def _whole_prompts(given: Given) -> Resolved:
    """Orca and static batching bound a batch by its requests and their memory alone."""
    return given.resolved({})


def _sarathi(given: Given) -> Resolved:
    return given.resolved({"watermark": WATERMARK})


def _llama_cpp(given: Given) -> Resolved:
    """The context of all slots together is the model's, unless that of one is given; it shrinks to what fits."""
    found = given.resolved({})
    slots = 1 if given.spec.max_model_len is None else found.settings.max_sequences
    return found._replace(most_kv_blocks=blocks_for(given.length * slots, found.settings.block_tokens))


FILL: dict[str, Callable[[Given], Resolved]] = {
    "vllm-v1": _vllm_v1,
    "vllm-v0": _vllm_v0,
    "sglang": _sglang,
    "trtllm": _trtllm,
    "orca": _whole_prompts,
    "static": _whole_prompts,
    "sarathi": _sarathi,
    "llama.cpp": _llama_cpp,
}
