"""The server's own time: what lies between its engine's step log and what its clients saw, on one clock.

A client's file is JSON: ``name`` (of the run, as in the log's request names: ``name-0``, ``name-1``, ...), ``t0`` (the
clock when it started), and per request ``start_times_s``, ``ttfts_s`` and ``end_times_s`` (seconds since ``t0``, TTFT
since the send).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import RidgelineError
from sim.fleet.step_log import LiveLog

COLUMNS = ("start_times_s", "ttfts_s", "end_times_s")
CURE = "give JSON with name, t0, start_times_s, ttfts_s and end_times_s of one run"


def server_time(log: LiveLog, tokens: Sequence[tuple[int, str, str]], clients: Sequence[Path]) -> dict[str, Any]:
    """Quantiles, in seconds: ``ingress_s`` from a client's send to the engine's receipt, ``idle_ingress_s`` of those
    sent while no step ran (an engine takes requests in between steps, so the others wait for one); ``first_token_s``
    and ``last_token_s`` from the end of the step that made a token to its arrival at the client.
    """
    arrived_s = {arrival.name: arrival.time_s for arrival in log.arrivals}
    made_s: dict[str, dict[str, float]] = {"first_token_s": {}, "finish_s": {}}
    for number, name, event in tokens:
        made_s[event][name] = log.steps[number].end_s
    names = ("ingress_s", "idle_ingress_s", "first_token_s", "last_token_s")
    found: dict[str, list[float]] = {name: [] for name in names}
    starts_s, ends_s = (np.array([getattr(step, name) for step in log.steps]) for name in ("start_s", "end_s"))
    for path in clients:
        run, t0_s, columns = _read(path)
        for index, (sent_s, ttft_s, end_s) in enumerate(zip(*columns, strict=True)):
            name = f"{run}-{index}"
            if name not in arrived_s:
                raise RidgelineError(f"{path}: the log has no request {name}\n  cure: give the log of this very run")
            found["ingress_s"].append(arrived_s[name] - t0_s - sent_s)
            before = int(np.searchsorted(starts_s, arrived_s[name])) - 1
            if before < 0 or ends_s[before] <= t0_s + sent_s:
                found["idle_ingress_s"].append(arrived_s[name] - t0_s - sent_s)
            if name in made_s["first_token_s"]:
                found["first_token_s"].append(t0_s + sent_s + ttft_s - made_s["first_token_s"][name])
            if name in made_s["finish_s"]:
                found["last_token_s"].append(t0_s + end_s - made_s["finish_s"][name])
    return {"requests": len(found["ingress_s"]), **{name: _quantiles(values) for name, values in found.items()}}


def _read(path: Path) -> tuple[str, float, list[list[float]]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        columns = [[float(value) for value in data[name]] for name in COLUMNS]
        _check_lengths(columns)
        return str(data["name"]), float(data["t0"]), columns
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RidgelineError(f"{path}: cannot be read: {error}\n  cure: {CURE}") from error


def _check_lengths(columns: Sequence[Sequence[float]]) -> None:
    if len({len(column) for column in columns}) != 1:
        raise ValueError("its lists are of different lengths")


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    figures = {"mean": float(np.mean(values)), "p50": p50, "p90": p90, "p99": p99}
    return {name: float(f"{value:.4g}") for name, value in figures.items()}
