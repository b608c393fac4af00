"""Which engines have pipeline stages and data-parallel ranks here, and what is taken for granted about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sim.engine import EngineRules, Resolved
from sim.errors import Problem
from sim.fleet.assumptions import Assumption
from sim.fleet.rank_choice import CHOICES, RULES
from sim.parallel import Parallelism
from sim.scenario import Loaded
from sim.scenario.specs import EngineSpec

PIPELINED = "vllm-v1"
"""The scheduler that plans around tokens in flight in a pipeline."""
IN_TURN = "llama.cpp"
"""The scheduler whose batch passes all stages before the next one starts: its layers are split over GPUs for memory."""
SGLANG_CONSERVATIVENESS = 0.3
"""Of a rank, times schedule_conservativeness; and chunked_prefill_size and max_running_requests are shared out among
ranks (SGLang 0.5.23: ``_handle_data_parallelism`` of server_args.py, and the model runner)."""


def unfit_for_parallelism(loaded: Loaded, rules: EngineRules) -> list[Problem]:
    """Pipelines and ranks of engines that have none here, and settings that a pipeline has no use for."""
    return [loaded.problem(path, problem, cure) for path, problem, cure in _unfit(loaded, rules)]


def _unfit(loaded: Loaded, rules: EngineRules) -> Iterator[tuple[str, str, str]]:
    parallel, engine = loaded.spec.deployment.parallel, loaded.spec.engine
    if parallel.data > 1 and (rules.engine not in CHOICES or rules.scheduler == "vllm-v0"):
        problem = f"attention data parallelism of {rules.title} is not known here"
        yield "deployment.data_parallel", problem, f"use one of {', '.join(CHOICES)}, or deployment.replicas"
    if rules.engine == "sglang" and engine.max_sequences is not None and engine.max_sequences < parallel.data:
        problem = f"{engine.max_sequences} leave {parallel.data} ranks, which share them, less than one each"
        yield "engine.max_sequences", problem, f"use at least {parallel.data}"
    if parallel.pipeline == 1:
        return
    if rules.scheduler not in {PIPELINED, IN_TURN}:
        problem = f"the pipeline of {rules.title} is not built yet"
        yield (
            "deployment.pipeline_parallel",
            problem,
            "use vllm from 0.9 on or llama.cpp, or tensor_parallel and replicas",
        )
    elif engine.async_scheduling:
        problem = "pipelines are simulated without asynchronous scheduling: requests wait for their token in any case"
        yield "engine.async_scheduling", problem, "leave it out"


def parallel_settings(parallel: Parallelism, rules: EngineRules, spec: EngineSpec, resolved: Resolved) -> Resolved:
    """The engine's settings in a pipeline, or those of one rank, where the engine changes them for that."""
    if overlaps_batches(parallel, rules):
        return _changed(resolved, async_scheduling=False)
    if parallel.data == 1 or rules.engine != "sglang":
        return resolved
    settings: Any = resolved.settings
    return _changed(
        resolved,
        max_batched_tokens=settings.max_batched_tokens // parallel.data,
        max_sequences=settings.max_sequences // (parallel.data if spec.max_sequences is not None else 1),
        schedule_conservativeness=settings.schedule_conservativeness * SGLANG_CONSERVATIVENESS,
    )


def overlaps_batches(parallel: Parallelism, rules: EngineRules) -> bool:
    """Whether the stages of a pipeline work on different batches at once."""
    return parallel.pipeline > 1 and rules.scheduler != IN_TURN


def _changed(resolved: Resolved, **changes: Any) -> Resolved:
    taken = resolved.defaults_taken
    defaults = {**taken, **{name: value for name, value in changes.items() if name in taken}}
    return resolved._replace(settings=replace(resolved.settings, **changes), defaults_taken=defaults)


def parallel_assumptions(parallel: Parallelism, rules: EngineRules) -> Iterator[Assumption]:
    """How batches share a pipeline, and how requests find their rank."""
    if parallel.pipeline > 1 and rules.scheduler == IN_TURN:
        yield Assumption(
            "pipeline",
            f"one batch at a time through {parallel.pipeline} stages",
            "llama.cpp splits layers over GPUs; that it overlaps parts of a long prompt is left out",
        )
    if overlaps_batches(parallel, rules):
        yield Assumption(
            "pipeline",
            f"{parallel.pipeline} batches in flight, no asynchronous scheduling",
            "vLLM's step_with_batch_queue: a request waits for its token before it is scheduled again, chunks of a "
            "prompt follow one another; vLLM's V1 model runner turns asynchronous scheduling off in a pipeline, its V2 "
            "runner (0.23 on, for some models) keeps one batch more in flight, which hides host time but sends each "
            "request at most once per pass too",
        )
    if parallel.data > 1:
        shared = (
            "; as in SGLang each has its part of chunked_prefill_size and max_running_requests, and 0.3 of "
            "schedule_conservativeness"
            if rules.engine == "sglang"
            else ""
        )
        yield Assumption(
            "data-parallel ranks",
            f"{parallel.data} per replica, each with its own scheduler and KV cache",
            f"requests go {RULES[rules.engine]}; all step together, idle ones with a dummy batch{shared}",
        )
