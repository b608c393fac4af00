"""Keys that are valid but would change nothing in this scenario: refused, so that no setting is silently ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sim.engine import EngineRules, EngineSettings
from sim.engine.versions import RECORDS, SPECIFIC_SETTINGS
from sim.errors import Problem
from sim.scenario import Loaded
from sim.scenario.specs import AbstractModel, EngineSpec, HardwareOverride, RooflineCost, Scenario

NEWEST = [records[-1] for records in RECORDS.values()]
KV_KEYS = (
    "kv_dtype",
    "kv_blocks",
    "block_tokens",
    "prefix_caching",
    "watermark",
    "reserve_full_prompt",
    "schedule_conservativeness",
    "ignore_eos",
)
"""Engine keys that say how the KV cache is kept."""
MOST_SLOTS = 256
"""Of llama.cpp: its LLAMA_MAX_SEQ."""
Found = Iterator[tuple[str, str, str]]
"""(dotted path, problem, cure)."""


def without_effect(loaded: Loaded) -> list[Problem]:
    """A problem for each key that was written and decides nothing."""
    spec = loaded.spec
    found = (
        *_no_kv(spec),
        *_no_host(spec),
        *_no_limit(spec),
        *_no_kernels(spec),
        *_no_measure(spec),
        *_no_drafts(spec),
    )
    return [loaded.problem(path, problem, cure) for path, problem, cure in found]


def _no_kv(spec: Scenario) -> Found:
    if isinstance(spec.model, AbstractModel):
        for name in KV_KEYS:
            if name in spec.engine.model_fields_set:
                yield f"engine.{name}", "has no effect: an abstract model has no KV cache", "leave it out"


def _no_host(spec: Scenario) -> Found:
    override = isinstance(spec.hardware, HardwareOverride) and spec.hardware.host_slowdown is not None
    if override and not (isinstance(spec.cost, RooflineCost) and spec.cost.efficiency == "calibrated"):
        cure = "leave it out, or use cost: {model: roofline, efficiency: calibrated}"
        yield "hardware.host_slowdown", "has no effect: only the calibrated roofline has a host", cure


def _no_limit(spec: Scenario) -> Found:
    limits = (spec.slo.ttft, spec.slo.tpot, spec.slo.e2e)
    if "attainment" in spec.slo.model_fields_set and all(limit is None for limit in limits):
        yield "slo.attainment", "has no effect: the SLO bounds nothing", "add ttft, tpot or e2e"


def _no_kernels(spec: Scenario) -> Found:
    if isinstance(spec.hardware, HardwareOverride) and not isinstance(spec.cost, RooflineCost):
        for name in ("peak_flops_per_s", "hbm_bytes_per_s"):
            if name in spec.hardware.model_fields_set:
                yield f"hardware.{name}", "has no effect: a linear cost knows no hardware", "leave it out"


def _no_measure(spec: Scenario) -> Found:
    warmup, requests = spec.measure.warmup, spec.traffic.requests
    if isinstance(warmup, int) and requests is not None and warmup >= requests:
        yield "measure.warmup", f"leaves nothing of {requests} requests to measure", f"use fewer than {requests}"
    if isinstance(warmup, float) and spec.traffic.duration is not None and warmup >= spec.traffic.duration:
        yield "measure.warmup", "is as long as the load itself", "make it shorter than traffic.duration"


def _no_drafts(spec: Scenario) -> Found:
    if spec.engine.speculative is None and "draft_pass_s" in spec.cost.model_fields_set:
        yield "cost.draft_pass_s", "has no effect: nothing is drafted", "leave it out, or add engine.speculative"


def unfit_for_engine(loaded: Loaded, rules: EngineRules) -> list[Problem]:
    """Settings that this engine does not have, or that another of its settings makes idle."""
    engine = loaded.spec.engine
    found = (*_unknown(engine, rules), *_idle(engine, rules), *_contradictory(engine, rules))
    return [loaded.problem(f"engine.{name}", problem, cure) for name, problem, cure in found]


def _unknown(engine: EngineSpec, rules: EngineRules) -> Found:
    for name in sorted((engine.model_fields_set & SPECIFIC_SETTINGS) - rules.settings):
        having = ", ".join(other.title for other in NEWEST if name in other.settings)
        yield name, f"{rules.title} has no such setting", f"leave it out; it is a setting of {having}"
    if engine.policy is not None and "policy" in rules.settings and engine.policy not in rules.policies:
        yield "policy", f"{rules.title} has no policy {engine.policy}", f"use one of {', '.join(rules.policies)}"


def _idle(engine: EngineSpec, rules: EngineRules) -> Found:
    chunked = rules.chunked_prefill if engine.chunked_prefill is None else engine.chunked_prefill
    if engine.chunking_policy is not None and "chunking_policy" in rules.settings and not chunked:
        yield "chunking_policy", "has no effect: prompts are not chunked", "leave it out, or add chunked_prefill: true"
    waits = ("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio")
    for name, other in (waits, waits[::-1]):
        if getattr(engine, name) and not getattr(engine, other) and name in rules.settings:
            yield name, f"has no effect without {other}", f"leave it out, or add {other}"
    if engine.mixed_chunk and not chunked:
        yield "mixed_chunk", "has no effect: prompts are not chunked", "leave it out, or drop chunked_prefill: false"
    if engine.priority_preemption and engine.policy != "priority":
        yield "priority_preemption", "has no effect without priorities", "leave it out, or add policy: priority"


def _contradictory(engine: EngineSpec, rules: EngineRules) -> Found:
    if rules.engine == "sglang" and engine.policy == "shortest-prefill-first" and engine.prefix_caching is False:
        yield "policy", f"{engine.policy} needs prefix caching, which is off", "use fcfs, or drop prefix_caching: false"
    if rules.engine == "trtllm" and engine.chunked_prefill:
        tokens = engine.max_batched_tokens or rules.batch_defaults[0].server_tokens
        block = engine.block_tokens or rules.block_tokens
        if tokens < block:
            name = "block_tokens" if engine.max_batched_tokens is None else "max_batched_tokens"
            problem = f"a step of {tokens:,} tokens takes no chunk, which is at least one block of {block:,}"
            yield name, problem, f"use at least {block} max_batched_tokens, or smaller block_tokens"

    if rules.divides_pool and (engine.max_sequences or 0) > MOST_SLOTS:
        problem = f"{rules.title} has no more than {MOST_SLOTS} slots, and refuses {engine.max_sequences:,} at start-up"
        yield "max_sequences", problem, f"use at most {MOST_SLOTS}, or more deployment.replicas"


def impossible_budgets(loaded: Loaded, rules: EngineRules, settings: EngineSettings) -> list[Problem]:
    """Budgets that the engine refuses at start-up."""
    check = BUDGETS.get(rules.scheduler)
    found = check(settings) if check else ()
    return [loaded.problem(path, problem, cure) for path, problem, cure in found]


def _vllm_v0_budgets(settings: EngineSettings) -> Found:
    yield from _vllm_budgets(settings)
    tokens, block = settings.max_batched_tokens, settings.block_tokens
    if settings.chunked_prefill and settings.prefix_caching and tokens % block:
        problem = f"with chunked prefill and prefix caching, {tokens:,} tokens must be whole blocks of {block:,}"
        yield "engine.max_batched_tokens", problem, f"use a multiple of {block}, or turn one of the two off"


def _vllm_budgets(settings: EngineSettings) -> Found:
    tokens, sequences, longest = settings.max_batched_tokens, settings.max_sequences, settings.max_model_len
    if tokens < sequences:
        problem = f"{tokens:,} tokens per step are fewer than max_sequences, {sequences:,}"
        cure = f"use at least {sequences}, or set max_sequences to at most {tokens}"
        yield "engine.max_batched_tokens", problem, cure
    if not settings.chunked_prefill and tokens < longest:
        problem = f"without chunked prefill a step must take a whole prompt of max_model_len, {longest:,} tokens"
        cure = f"use at least {longest}, or set max_model_len to at most {tokens}"
        yield "engine.max_batched_tokens", problem, cure
    speculation = settings.speculation
    if speculation is not None and tokens < speculation.least_budget_tokens:
        problem = f"{tokens:,} tokens per step do not hold one request's token and its drafts"
        cure = f"use at least {speculation.least_budget_tokens}, or draft fewer tokens"
        yield "engine.max_batched_tokens", problem, cure


def _sglang_budgets(settings: EngineSettings) -> Found:
    chunk, page = settings.max_batched_tokens, settings.block_tokens
    if settings.chunked_prefill and chunk % page:
        problem = f"a chunk of {chunk:,} tokens is not a whole number of pages of {page:,}"
        yield "engine.max_batched_tokens", problem, f"use a multiple of {page}"


BUDGETS: dict[str, Callable[[EngineSettings], Found]] = {
    "vllm-v1": _vllm_budgets,
    "vllm-v0": _vllm_v0_budgets,
    "sglang": _sglang_budgets,
}
