"""Keys that are valid but would change nothing in this scenario: refused, so that no setting is silently ignored."""

from __future__ import annotations

from collections.abc import Iterator

from sim.engine import EngineSettings
from sim.errors import Problem
from sim.scenario import Loaded
from sim.scenario.specs import AbstractModel, HardwareOverride, RooflineCost, Scenario

KV_KEYS = ("kv_dtype", "kv_blocks", "block_tokens", "prefix_caching", "watermark", "reserve_full_prompt")
"""Engine keys that say how the KV cache is kept."""
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


def impossible_budgets(loaded: Loaded, settings: EngineSettings) -> list[Problem]:
    """Budgets that vLLM refuses at start-up."""
    problems = []
    tokens, sequences, longest = settings.max_batched_tokens, settings.max_sequences, settings.max_model_len
    if tokens < sequences:
        problem = f"{tokens:,} tokens per step are fewer than max_sequences, {sequences:,}"
        cure = f"use at least {sequences}, or set max_sequences to at most {tokens}"
        problems.append(loaded.problem("engine.max_batched_tokens", problem, cure))
    if not settings.chunked_prefill and tokens < longest:
        problem = f"without chunked prefill a step must take a whole prompt of max_model_len, {longest:,} tokens"
        cure = f"use at least {longest}, or set max_model_len to at most {tokens}"
        problems.append(loaded.problem("engine.max_batched_tokens", problem, cure))
    speculation = settings.speculation
    if speculation is not None and tokens < speculation.least_budget_tokens:
        problem = f"{tokens:,} tokens per step do not hold one request's token and its drafts"
        cure = f"use at least {speculation.least_budget_tokens}, or draft fewer tokens"
        problems.append(loaded.problem("engine.max_batched_tokens", problem, cure))
    return problems
