"""What a run's classes got, each judged by its own SLO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.results.metrics import distribution, meets, throughput
from sim.scenario.slo_spec import SloSpec

Slo = dict[str, float | None]


def limits(slo: SloSpec) -> Slo:
    """An SLO's bounds by the names of the latencies they bound."""
    return {"ttft_s": slo.ttft, "tpot_s": slo.tpot, "e2e_s": slo.e2e}


def has_bounds(slo: Slo) -> bool:
    """Whether anything is asked."""
    return any(limit is not None for limit in slo.values())


def judged(columns: Mapping[str, np.ndarray], slos: list[Slo]) -> tuple[np.ndarray, np.ndarray]:
    """Which requests meet their class's SLO, and which have one at all."""
    good, bound = (np.zeros(len(columns["status"]), dtype=bool) for _ in range(2))
    for code, slo in enumerate(slos):
        if has_bounds(slo):
            inside = columns["class_index"] == code
            good |= inside & meets(columns, slo)
            bound |= inside
    return good, bound


def summarise_classes(
    columns: Mapping[str, np.ndarray],
    names: list[str],
    slos: list[SloSpec],
    window_s: float,
    latencies: tuple[str, ...],
) -> dict[str, Any]:
    """By class: counts, latencies, throughput and SLO over the run's measured window."""
    return {
        name: _one(
            {key: column[columns["class_index"] == code] for key, column in columns.items()}, slo, window_s, latencies
        )
        for code, (name, slo) in enumerate(zip(names, slos, strict=True))
    }


def _one(columns: dict[str, np.ndarray], slo: SloSpec, window_s: float, latencies: tuple[str, ...]) -> dict[str, Any]:
    from sim.results.summary import counts

    bounds = limits(slo)
    asked = has_bounds(bounds) and len(columns["status"]) > 0
    good = meets(columns, bounds)
    return {
        "requests": counts(columns),
        "throughput": throughput(columns, window_s),
        **{name: distribution(columns[name]) for name in latencies},
        "slo": {
            **bounds,
            "target_attainment": slo.attainment if has_bounds(bounds) else None,
            "attainment": float(good.mean()) if asked else None,
            "goodput_requests_per_s": float(good.sum()) / window_s if asked and window_s > 0 else None,
        },
    }
