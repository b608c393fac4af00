"""The summary of a run: the object that ``sim run --json`` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.engine.versions import SPECIFIC_SETTINGS
from sim.results.gaps import GapLog
from sim.results.metrics import (
    as_json,
    attainment,
    distribution,
    measured_window,
    meets,
    select,
    throughput,
    weighted_distribution,
)
from sim.results.requests import STATUSES, derive
from sim.results.speculation import speculative_summary
from sim.results.verdict import Verdict, judge

if TYPE_CHECKING:
    from sim.fleet import RunRecord
    from sim.fleet.assembly import Setup

LATENCIES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")


def measured_rows(columns: dict[str, np.ndarray], warmup: float) -> np.ndarray:
    """Which requests count: an int leaves out that many at the start, a float those sent before that time."""
    if isinstance(warmup, int):
        return np.arange(len(columns["arrival_s"])) >= warmup
    return columns["arrival_s"] >= warmup


def summarise(run: RunRecord) -> dict[str, Any]:
    """Everything a script may want of a run, as plain JSON types; null where a figure is undefined.

    Latencies, throughput, attainment and the counts of requests are of the measured ones; ``steps``, ``preemptions``,
    ``kv``, ``speculative``, ``bound``, ``rejections`` and ``requests.truncated`` are of the whole run.
    """
    setup, spec = run.setup, run.setup.loaded.spec
    everyone = derive(run.requests.columns())
    columns = select(everyone, measured_rows(everyone, spec.measure.warmup))
    window = measured_window(columns, run.end_s)
    window_s = window[1] - window[0]
    slo = {"ttft_s": spec.slo.ttft, "tpot_s": spec.slo.tpot, "e2e_s": spec.slo.e2e}
    verdict = _verdict(run, columns)
    has_slo = any(limit is not None for limit in slo.values())
    summary: dict[str, Any] = as_json(
        {
            "model": setup.model.name,
            "hardware": setup.hardware.name,
            "engine": {"name": setup.rules.engine, "version": setup.rules.version, "settings": _settings(setup)},
            "deployment": spec.deployment.model_dump(),
            "seed": spec.seed,
            "partial": run.partial,
            "requests": {**_counts(columns), "truncated": run.truncated},
            "rejections": run.rejections,
            "duration_s": window_s,
            "measured_window_s": window,
            "simulated_s": run.end_s,
            "steps": sum(recorder.steps_taken for recorder in run.recorders),
            "offered": {"requests_per_s": _offered(columns)},
            "throughput": throughput(columns, window_s),
            **{name: distribution(columns[name]) for name in LATENCIES},
            "itl_s": _itl(run, window[0]),
            "slo": {
                **slo,
                "target_attainment": spec.slo.attainment if has_slo else None,
                "attainment": attainment(columns, slo),
                "goodput_requests_per_s": meets(columns, slo).sum() / window_s if has_slo and window_s > 0 else None,
            },
            "preemptions": sum(recorder.preemptions for recorder in run.recorders),
            "kv": _kv(run),
            "speculative": speculative_summary(run),
            "bound": _bound(run),
            "verdict": verdict.state,
            "verdict_reason": verdict.reason,
            "assumed": [assumption._asdict() for assumption in setup.assumed],
        }
    )
    return summary


def _settings(setup: Setup) -> dict[str, Any]:
    """The engine's settings, without those that its scheduler does not have."""
    every, rules = asdict(setup.settings), setup.rules
    if "speculative" not in rules.settings:
        del every["speculation"]
    return {name: value for name, value in every.items() if name in rules.settings or name not in SPECIFIC_SETTINGS}


def _counts(columns: dict[str, np.ndarray]) -> dict[str, int]:
    status = columns["status"]
    counts = {name: int((status == name).sum()) for name in STATUSES[1:]}
    return {"submitted": len(status), **counts, "failed": 0}


def _offered(columns: dict[str, np.ndarray]) -> float | None:
    arrival_s = columns["arrival_s"]
    span_s = float(np.ptp(arrival_s)) if len(arrival_s) else 0.0
    return (len(arrival_s) - 1) / span_s if span_s > 0 else None


def _itl(run: RunRecord, from_s: float) -> dict[str, float | None]:
    """All gaps that ended within the measured window, pooled over requests."""
    table = run.steps.table
    end_s = table.column("start_s") + table.column("duration_s")
    shared = (table.column("gap_s"), table.column("streaming"), end_s)
    singles = [(np.array(log.gap_s), np.ones(len(log.gap_s)), np.array(log.end_s)) for log in _gap_logs(run)]
    gap_s, weight, end_s = (np.concatenate(parts) for parts in zip(shared, *singles, strict=True))
    kept = (end_s >= from_s) & (weight > 0)
    return weighted_distribution(gap_s[kept], weight[kept])


def _gap_logs(run: RunRecord) -> list[GapLog]:
    return [recorder.gaps for recorder in run.recorders]


def _kv(run: RunRecord) -> dict[str, Any]:
    capacity = run.setup.capacity
    peak = int(run.steps.table.column("kv_blocks_used").max(initial=0))
    queries = run.prefix_queries
    return {
        "capacity_tokens": None if capacity is None else capacity.tokens,
        "capacity_blocks": None if capacity is None else capacity.blocks,
        "block_tokens": run.setup.settings.block_tokens,
        "peak_utilization": None if capacity is None else peak / capacity.blocks,
        "prefix_hit_rate": run.prefix_hits / queries if run.setup.settings.prefix_caching and queries else None,
    }


def _bound(run: RunRecord) -> dict[str, float]:
    """Shares of fleet time (all replicas, from 0 to the end) by what bounded it; kernel launch counts as host.

    The end is that of the last step: one planned ahead may outlast the last request.
    """
    total_s = max([run.end_s, *(recorder.last_end_s for recorder in run.recorders)]) * len(run.recorders)
    if total_s <= 0:
        return {"compute": 0.0, "memory": 0.0, "communication": 0.0, "host": 0.0, "idle": 1.0}
    names = ("compute", "memory", "communication", "host")
    shares = {name: float(run.steps.table.column(f"{name}_s").sum()) / total_s for name in names}
    return {**shares, "idle": max(0.0, 1.0 - sum(shares.values()))}


def _verdict(run: RunRecord, columns: dict[str, np.ndarray]) -> Verdict:
    arrivals = run.setup.loaded.spec.traffic.arrivals
    served = int((columns["status"] == "completed").sum())
    if not len(columns["status"]):
        return Verdict("stable", "the warm-up left no request to measure")
    if not served and not run.partial:
        return Verdict("overloaded", f"none of {len(columns['status']):,} requests was served")
    if arrivals.process == "burst":
        return Verdict("stable", "a burst: all is sent at once, so latencies depend on how many requests there are")
    due_s = columns["received_s"] - columns["client_wait_s"]
    return judge(due_s, columns["scheduled_s"], open_loop=arrivals.process != "closed")
