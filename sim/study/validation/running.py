"""One measured case simulated."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from sim.errors import RidgelineError, ScenarioError
from sim.results.metrics import measured_window, throughput
from sim.results.requests import COMPLETED, derive
from sim.scenario import load_scenario
from sim.study.validation.cases import LATENCIES, RATES, Case
from sim.study.validation.rules import CLIENT_S, scenario_of, spreads_clients

PERCENTILES = (50, 90, 95, 99)
COLUMNS = (
    "ttft_s", "tpot_s", "e2e_s", "arrival_s", "finish_s", "return_s", "prompt_tokens", "output_tokens", "status",
)  # fmt: skip
Row = dict[str, Any]
"""``predicted`` by metric, or ``reason`` why the case was skipped; and the ``seconds`` it took."""


def run_case(case: Case) -> Row:
    """What a simulation of the case's scenario gives; a case that cannot run gives the reason."""
    started = perf_counter()
    if case.prefill_replicas is not None or case.decode_replicas is not None:
        return {"reason": "disaggregated serving is not built yet", "seconds": 0.0}
    try:
        predicted = _predict(case)
    except RidgelineError as error:
        return {"reason": _reason(error), "seconds": perf_counter() - started}
    return {"predicted": predicted, "seconds": perf_counter() - started}


def run_cases(cases: Sequence[Case]) -> list[Row]:
    """Several cases, one after another, in one process."""
    return [run_case(case) for case in cases]


def _predict(case: Case) -> dict[str, float]:
    if not spreads_clients(case):
        return _at_client(case, _simulated(scenario_of(case)))
    first = _simulated(scenario_of(case, requests=case.concurrency))
    return _at_client(case, _simulated(scenario_of(case, rampup_s=first["e2e_mean"])))


def _at_client(case: Case, predicted: dict[str, float]) -> dict[str, float]:
    """With what the load generator adds to each request before its first token."""
    client_s = CLIENT_S.get(case.set, 0.0)
    return {name: value + client_s if name.startswith(("ttft", "e2e")) else value for name, value in predicted.items()}


def _simulated(scenario: dict[str, Any]) -> dict[str, float]:
    from sim.fleet import simulate

    run = simulate(load_scenario(scenario))
    columns = derive(run.requests.columns(), COLUMNS)
    left = int((columns["status"] != COMPLETED).sum())
    if left:
        why = "; ".join(run.rejections) or "they did not end"
        raise RidgelineError(f"{left} of {len(columns['status'])} requests were not served: {why}")
    start_s, end_s = measured_window(columns, run.end_s)
    rates = throughput(columns, end_s - start_s)
    found = {name: float(rate) for name in RATES if (rate := rates[name]) is not None}
    for latency in LATENCIES:
        found |= figures(latency, columns[f"{latency}_s"])
    return found


def figures(name: str, values_s: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of what exists, as ``ttft_mean`` and so on; nothing where there is none."""
    values_s = values_s[~np.isnan(values_s)]
    if not len(values_s):
        return {}
    percentiles = zip(PERCENTILES, np.percentile(values_s, PERCENTILES), strict=True)
    return {f"{name}_mean": float(values_s.mean()), **{f"{name}_p{rank}": float(value) for rank, value in percentiles}}


def _reason(error: RidgelineError) -> str:
    """An error in one line, without its cure."""
    if isinstance(error, ScenarioError):
        return "; ".join(f"{problem.path}: {problem.problem}".strip(": ") for problem in error.problems)
    return str(error).partition("\n")[0]
