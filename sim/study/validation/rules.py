"""From a measured case to the scenario that is simulated for it.

Every rule follows from the load generator, the engine, its release or its published launch, never from one case:

* Warm-up requests end before the measured ones start, so the simulated run starts with an engine that is idle and warm
  and does not run them. All clients of a closed loop start at once.
* The tool behind set ``p2`` does not start its clients together: they are spread evenly over the time of one request,
  which a first run of one request per client predicts. Its TTFT and E2E hold 0.125 s that no engine spends (two engines
  alike, and absent from the other sets): the load generator's own.
* Where a row does not say how many requests were sent, it is vllm bench's default, 1,000.
* Lengths that a source states as a mean are rounded to whole tokens.
* The release is the row's, or else that of its date (see ``releases``); settings are the row's, or else those of the
  harness's published launch (see ``recipes``), or else the engine's defaults.
"""

from __future__ import annotations

from typing import Any

from sim.models import load_model, preset_names
from sim.study.validation.cases import Case
from sim.study.validation.recipes import recipe
from sim.study.validation.releases import release_of

REQUESTS = 1000
"""--num-prompts of vllm bench serve where a row does not say."""
SPREAD = frozenset({"p2"})
"""Sets whose tool spreads its clients over the time of one request."""
CLIENT_S = {"p2": 0.125}
"""Seconds a load generator adds to each request, by set: the middle of the 0.10-0.15 s that a feasibility study read
off the rows of this very set (by engine it fitted 0.07-0.14). Not fitted again, and not held out."""
ROW_SETTINGS = (
    "max_model_len",
    "max_batched_tokens",
    "max_sequences",
    "chunked_prefill",
    "prefix_caching",
    "scheduler_recv_interval",
)
DEPLOYMENT = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "dp": "data_parallel", "ep": "expert_parallel"}


def scenario_of(case: Case, rampup_s: float = 0.0, requests: int | None = None) -> dict[str, Any]:
    """The scenario of a case, as its YAML would be. ``rampup_s``: over which the clients of a closed loop start;
    ``requests`` replaces the row's number.
    """
    model, weight_dtype = model_of(case)
    engine = {
        "name": case.engine,
        "version": case.engine_version or release_of(case.engine, case.day),
        "weight_dtype": weight_dtype,
        **recipe(case),
    }
    engine |= {name: value for name in ROW_SETTINGS if (value := getattr(case, name)) is not None}
    if case.kv_dtype is not None:
        engine["kv_dtype"] = case.kv_dtype
    deployment = {key: count for name, key in DEPLOYMENT.items() if (count := getattr(case, name)) > 1}
    return {
        "model": model,
        "hardware": case.gpu,
        "engine": {name: value for name, value in engine.items() if value is not None},
        "deployment": deployment,
        "traffic": {
            "arrivals": _arrivals(case, rampup_s),
            "requests": requests or case.num_requests or REQUESTS,
            "prompt_tokens": _lengths(case.prompt_tokens - (case.shared_prefix_tokens or 0), case.length_ratio),
            "output_tokens": _lengths(case.output_tokens, case.length_ratio),
            **_shared_prefix(case),
        },
    }


def spreads_clients(case: Case) -> bool:
    """Whether the clients of a closed loop start one by one."""
    return case.set in SPREAD and case.load == "closed" and case.request_rate is None and (case.concurrency or 1) > 1


def model_of(case: Case) -> tuple[str, str | None]:
    """The preset, and the dtype its weights are replaced with: none where a checkpoint of that dtype is known."""
    dtype = case.weight_dtype
    if dtype is None:
        return case.model, None
    quantised = f"{case.model}-{dtype}"
    if quantised in preset_names():
        return quantised, None
    if case.model not in preset_names():
        return case.model, dtype
    weights = load_model(case.model).weights
    return case.model, None if dtype in (weights.dense_ffn, weights.experts) else dtype


def _arrivals(case: Case, rampup_s: float) -> dict[str, Any]:
    if case.load == "burst":
        return {"process": "burst"}
    if case.load == "open" or case.request_rate is not None:
        limit = {} if case.concurrency is None else {"max_concurrency": case.concurrency}
        return {"process": case.arrival or "poisson", "rate": case.request_rate, **limit}
    if rampup_s > 0:
        return {"process": "guidellm", "profile": "concurrent", "streams": case.concurrency, "rampup": rampup_s}
    return {"process": "closed", "concurrency": case.concurrency}


def _lengths(longest: float, ratio: float) -> dict[str, Any] | int:
    """Uniform integers in [ratio * longest, longest]."""
    high = max(1, round(longest))
    low = max(1, int(ratio * longest))
    return high if low >= high or ratio == 1 else {"distribution": "uniform", "low": low, "high": high}


def _shared_prefix(case: Case) -> dict[str, Any]:
    if case.shared_prefix_tokens is None:
        return {}
    shared = {"tokens": case.shared_prefix_tokens, "groups": case.prefix_groups or 1}
    if case.prompts_per_group is not None:
        shared["prompts_per_group"] = case.prompts_per_group
    return {"shared_prefix": shared}
