"""The summary of a run: the object that ``sim run --json`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.engine.versions import SPECIFIC_SETTINGS
from sim.results.by_class import has_bounds, judged, limits, summarise_classes
from sim.results.definitions import measured_by
from sim.results.metrics import (
    Distribution,
    Weighted,
    as_json,
    distribution,
    measured_window,
    throughput,
    weighted_distribution,
)
from sim.results.requests import COMPLETED, STATUSES, derive
from sim.results.speculation import speculative_summary
from sim.results.streams import Streams
from sim.results.verdict import Verdict, judge

if TYPE_CHECKING:
    from sim.fleet import RunRecord
    from sim.fleet.assembly import Setup
    from sim.fleet.session_clients import SessionTally

LATENCIES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")
TIMES = ("arrival_s", "client_wait_s", "received_s", "scheduled_s", "finish_s", "return_s")
COLUMNS = (*LATENCIES, *TIMES, "prompt_tokens", "output_tokens", "status", "class_index")
"""Of the request table, those that a summary needs."""


def measured_rows(columns: dict[str, np.ndarray], warmup: float) -> slice | np.ndarray:
    """Which requests count: an int leaves out that many at the start, a float those sent before that time."""
    if isinstance(warmup, int):
        return slice(warmup, None)
    return columns["arrival_s"] >= warmup


def summarise(run: RunRecord) -> dict[str, Any]:
    """Everything a script may want of a run, as plain JSON types; null where a figure is undefined.

    Latencies, throughput, attainment and the counts of requests are of the measured ones; ``steps``, ``preemptions``,
    ``kv``, ``speculative``, ``bound``, ``rejections``, ``sessions``, ``trace`` (what was left out of it; null: nothing)
    and ``requests.truncated`` are of the whole run. ``requests.failed`` are those whose clients gave up;
    ``cancelled`` says how many of them by their user's will.
    """
    setup, spec = run.setup, run.setup.loaded.spec
    everyone = run.requests.columns()
    rows = measured_rows(everyone, spec.measure.warmup)
    columns = derive(everyone, COLUMNS, rows)
    window = measured_window(columns, run.end_s)
    window_s = window[1] - window[0]
    slo = limits(spec.slo)
    classes = spec.traffic.classes or {}
    slos = [own.slo or spec.slo for own in classes.values()] or [spec.slo]
    good, bound = judged(columns, [limits(each) for each in slos])
    verdict = _verdict(run, columns)
    has_slo = any(has_bounds(limits(each)) for each in slos)
    summary: dict[str, Any] = as_json(
        {
            "model": setup.model.name,
            "hardware": setup.hardware.name,
            "engine": {"name": setup.rules.engine, "version": setup.rules.version, "settings": _settings(setup)},
            "deployment": spec.deployment.model_dump(),
            "seed": spec.seed,
            "partial": run.partial,
            "requests": {**counts(columns), "truncated": run.truncated},
            "sessions": _sessions(run.sessions),
            "rejections": run.rejections,
            "trace": run.trace,
            "duration_s": window_s,
            "measured_window_s": window,
            "simulated_s": run.end_s,
            "steps": sum(recorder.steps_taken for recorder in run.recorders),
            "offered": {"requests_per_s": _offered(columns)},
            "throughput": throughput(columns, window_s),
            **{name: distribution(columns[name]) for name in LATENCIES},
            "itl_s": _itl(run, window[0]),
            **_by_stream(run, rows),
            "metrics": spec.metrics,
            "slo": {
                **slo,
                "target_attainment": spec.slo.attainment if has_slo else None,
                "attainment": float(good.sum() / bound.sum()) if bound.any() else None,
                "goodput_requests_per_s": good.sum() / window_s if has_slo and window_s > 0 else None,
            },
            "classes": summarise_classes(columns, list(classes), slos, window_s, LATENCIES) if classes else None,
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


def measured_streams(run: RunRecord, rows: slice | np.ndarray) -> Streams:
    """What clients saw of the measured requests that completed. The run must have kept it."""
    assert run.streams is not None, "the run was made without streams"
    everyone = run.requests.columns()
    completed = np.flatnonzero(everyone["status"] == COMPLETED)
    measured = np.arange(len(everyone["status"]))[rows]
    streams = run.streams.streams(everyone, run.steps.table, np.intersect1d(completed, measured))
    client = run.setup.loaded.spec.traffic.client
    return streams if client is None else streams.grouped(client.stream_interval)


def _by_stream(run: RunRecord, rows: slice | np.ndarray) -> dict[str, Distribution]:
    """What takes every chunk's arrival: another tool's metrics, or gaps between groups of tokens."""
    tool, client = run.setup.loaded.spec.metrics, run.setup.loaded.spec.traffic.client
    if tool != "vllm":
        return measured_by(tool, measured_streams(run, rows))
    if client is not None and client.stream_interval > 1:
        return {"itl_s": measured_by(tool, measured_streams(run, rows))["itl_s"]}
    return {}


def _settings(setup: Setup) -> dict[str, Any]:
    """The engine's settings, without those that its scheduler does not have."""
    every, rules = asdict(setup.settings), setup.rules
    if "speculative" not in rules.settings:
        del every["speculation"]
    return {name: value for name, value in every.items() if name in rules.settings or name not in SPECIFIC_SETTINGS}


def counts(columns: dict[str, np.ndarray]) -> dict[str, int]:
    """Requests by how they ended."""
    status = columns["status"]
    ended = np.bincount(status, minlength=len(STATUSES))[1:].tolist()
    by_status = dict(zip(STATUSES[1:], ended, strict=True))
    return {"submitted": len(status), **by_status, "failed": by_status["failed"] + by_status["cancelled"]}


def _sessions(tally: SessionTally | None) -> dict[str, Any] | None:
    """Of the whole run; None where requests stand alone."""
    if tally is None:
        return None
    told = ("started", "completed", "cut", "unsent_requests")
    duration_s = distribution(np.array(tally.duration_s))
    return {**{name: getattr(tally, name) for name in told}, "duration_s": duration_s}


def _offered(columns: dict[str, np.ndarray]) -> float | None:
    arrival_s = columns["arrival_s"]
    span_s = float(np.ptp(arrival_s)) if len(arrival_s) else 0.0
    return (len(arrival_s) - 1) / span_s if span_s > 0 else None


def _itl(run: RunRecord, from_s: float) -> dict[str, float | None]:
    """All gaps that ended within the measured window, pooled over requests."""

    def gaps() -> Iterator[Weighted]:
        for steps in run.steps.table.pieces(("start_s", "duration_s", "gap_s", "streaming")):
            kept = (steps["start_s"] + steps["duration_s"] >= from_s) & (steps["streaming"] > 0)
            yield steps["gap_s"][kept], steps["streaming"][kept]
        for recorder in run.recorders:
            gap_s = np.asarray(recorder.gaps.gap_s)[np.asarray(recorder.gaps.end_s) >= from_s]
            yield gap_s, np.ones(len(gap_s), dtype=np.int64)

    return weighted_distribution(gaps)


def _kv(run: RunRecord) -> dict[str, Any]:
    """Capacity and use of one replica: of all its data-parallel ranks together."""
    capacity, ranks = run.setup.capacity, run.setup.deployment.data_parallel
    peak = max(int(steps["kv_blocks_used"].max(initial=0)) for steps in run.steps.table.pieces(("kv_blocks_used",)))
    queries = run.prefix_queries
    return {
        "capacity_tokens": None if capacity is None else capacity.tokens * ranks,
        "capacity_blocks": None if capacity is None else capacity.blocks * ranks,
        "block_tokens": run.setup.settings.block_tokens,
        "peak_utilization": None if capacity is None else peak / (capacity.blocks * ranks),
        "prefix_hit_rate": run.prefix_hits / queries if run.setup.settings.prefix_caching and queries else None,
    }


def _bound(run: RunRecord) -> dict[str, float]:
    """Shares of fleet time (all replicas, from 0 to the end) by what bounded it; kernel launch counts as host.

    The end is that of the last step: one planned ahead may outlast the last request.
    """
    total_s = max([run.end_s, *(recorder.last_end_s for recorder in run.recorders)]) * len(run.recorders)
    if total_s <= 0:
        return {"compute": 0.0, "memory": 0.0, "communication": 0.0, "host": 0.0, "idle": 1.0}
    bounded_s = dict.fromkeys(("compute", "memory", "communication", "host"), 0.0)
    for steps in run.steps.table.pieces([f"{name}_s" for name in bounded_s]):
        for name in bounded_s:
            bounded_s[name] += float(steps[f"{name}_s"].sum())
    shares = {name: part_s / total_s for name, part_s in bounded_s.items()}
    return {**shares, "idle": max(0.0, 1.0 - sum(shares.values()))}


def _verdict(run: RunRecord, columns: dict[str, np.ndarray]) -> Verdict:
    served = int((columns["status"] == COMPLETED).sum())
    if not len(columns["status"]):
        return Verdict("stable", "the warm-up left no request to measure")
    if not served and not run.partial:
        return Verdict("overloaded", f"none of {len(columns['status']):,} requests was served")
    traffic = run.setup.traffic()
    if traffic.at_once:
        return Verdict("stable", "a burst: all is sent at once, so latencies depend on how many requests there are")
    due_s = columns["received_s"] - columns["client_wait_s"]
    return judge(due_s, columns["scheduled_s"], open_loop=traffic.closed_concurrency is None)
