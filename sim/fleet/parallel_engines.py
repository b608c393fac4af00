"""Which engines have pipeline stages and data-parallel ranks here, and what is taken for granted about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.engine import EngineRules, Resolved
from sim.errors import Problem
from sim.fleet.assumptions import Assumption
from sim.fleet.rank_choice import CHOICES, RULES
from sim.parallel import Parallelism
from sim.scenario import Loaded

PIPELINED = "vllm-v1"
"""The scheduler that plans around tokens in flight in a pipeline."""


def unfit_for_parallelism(loaded: Loaded, rules: EngineRules) -> list[Problem]:
    """Pipelines and ranks of engines that have none here, and settings that a pipeline has no use for."""
    return [loaded.problem(path, problem, cure) for path, problem, cure in _unfit(loaded, rules)]


def _unfit(loaded: Loaded, rules: EngineRules) -> Iterator[tuple[str, str, str]]:
    parallel, engine = loaded.spec.deployment.parallel, loaded.spec.engine
    if parallel.data > 1 and (rules.engine not in CHOICES or rules.scheduler == "vllm-v0"):
        problem = f"attention data parallelism of {rules.title} is not known here"
        yield "deployment.data_parallel", problem, f"use one of {', '.join(CHOICES)}, or deployment.replicas"
    if parallel.pipeline == 1:
        return
    if rules.scheduler != PIPELINED:
        problem = f"the pipeline of {rules.title} is not built yet"
        yield "deployment.pipeline_parallel", problem, "use vllm from 0.9 on, or tensor_parallel and replicas"
    elif engine.async_scheduling:
        problem = "pipelines are simulated without asynchronous scheduling: requests wait for their token in any case"
        yield "engine.async_scheduling", problem, "leave it out"
    if engine.speculative is not None:
        problem = "speculation in a pipeline is not built yet"
        yield "engine.speculative", problem, "leave it out, or use deployment.tensor_parallel"


def synchronous_pipeline(parallel: Parallelism, resolved: Resolved) -> Resolved:
    """In a pipeline asynchronous scheduling is not taken by default."""
    if parallel.pipeline == 1:
        return resolved
    defaults = dict(resolved.defaults_taken)
    if "async_scheduling" in defaults:
        defaults["async_scheduling"] = False
    return resolved._replace(settings=replace(resolved.settings, async_scheduling=False), defaults_taken=defaults)


def parallel_assumptions(parallel: Parallelism, rules: EngineRules) -> Iterator[Assumption]:
    """How batches share a pipeline, and how requests find their rank."""
    if parallel.pipeline > 1:
        yield Assumption(
            "pipeline",
            f"{parallel.pipeline} batches in flight, no asynchronous scheduling",
            "vLLM's step_with_batch_queue: a request waits for its token before it is scheduled again, chunks of a "
            "prompt follow one another; vLLM's V1 model runner turns asynchronous scheduling off in a pipeline, its V2 "
            "runner (0.23 on, for some models) keeps one batch more in flight, which hides host time but sends each "
            "request at most once per pass too",
        )
    if parallel.data > 1:
        yield Assumption(
            "data-parallel ranks",
            f"{parallel.data} per replica, each with its own scheduler and KV cache",
            f"requests go {RULES[rules.engine]}; all step together, idle ones with a dummy batch",
        )
