"""Runs recorded request by request, replayed: real arrivals and lengths in, percentiles side by side out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from sim.errors import Problem, RidgelineError, TraceError
from sim.results.files import write_text
from sim.results.requests import COMPLETED, derive
from sim.scenario import load_scenario

FIGURES = ("mean", "p50", "p90", "p99")
LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
Replay = dict[str, dict[str, dict[str, float]]]
"""``measured``, ``predicted`` and ``error`` (a fraction) by latency and figure."""


class Recorded(NamedTuple):
    """One request of a recorded run; times are seconds of one clock."""

    prompt_tokens: int
    output_tokens: int
    queued_s: float
    first_token_s: float
    last_token_s: float


KEYS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")


def replay(
    requests: str | Path, scenario: str | Path | Mapping[str, Any], *, overrides: Mapping[str, Any] | None = None
) -> Replay:
    """The scenario with the recorded requests as its traffic, against what was recorded.

    ``requests``: JSONL of input_toks, output_toks, queued_ts, first_token_ts and last_token_ts; the clock starts when a
    request is queued. What the scenario says of traffic and measurement is replaced. Raises TraceError with file and
    line.
    """
    from sim.fleet import simulate

    recorded = read_requests(Path(requests))
    source = scenario if isinstance(scenario, Mapping) else str(scenario)
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "requests.csv"
        start_s = recorded[0].queued_s
        lines = [f"{row.queued_s - start_s!r},{row.prompt_tokens},{row.output_tokens}" for row in recorded]
        trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines, ""]), encoding="utf-8")
        traffic = {"arrivals": {"process": "trace", "path": str(trace), "format": "table"}}
        loaded = load_scenario(source, overrides={**(overrides or {}), "traffic": traffic, "measure": {}})
        run = simulate(loaded)
    columns = derive(run.requests.columns(), (*LATENCIES, "status"))
    left = int((columns["status"] != COMPLETED).sum())
    if left:
        why = "; ".join(run.rejections) or "they did not end"
        raise RidgelineError(
            f"{requests}: {left} of {len(recorded)} requests were not served: {why}\n"
            "  cure: give the scenario the engine settings of the recorded run"
        )
    measured = _measured(recorded)
    return {name: _side_by_side(measured[name], columns[name]) for name in LATENCIES}


def read_requests(path: Path) -> list[Recorded]:
    """The requests of a file, in order of time. Raises TraceError with file, line, key and cure."""
    if not path.is_file():
        raise RidgelineError(f"{path}: no such file\n  cure: give the path of a JSONL file, one request per line")
    rows = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if text.strip():
            rows.append(_request(path, number, text))
    if not rows:
        raise TraceError(Problem(str(path), None, "", "there is no request", "give a JSON object per line"))
    return sorted(rows, key=lambda row: row.queued_s)


def _request(path: Path, number: int, text: str) -> Recorded:
    def reject(key: str, problem: str) -> TraceError:
        return TraceError(Problem(str(path), number, key, problem, f"a request needs {', '.join(KEYS)}"))

    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise reject("", "this line is no JSON object")
    for key in KEYS:
        value = line.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise reject(key, "is no number" if key in line else "missing")
        if key.endswith("toks") and (value < 1 or value != int(value)):
            raise reject(key, "is no whole number of 1 or more")
    row = Recorded(*(line[key] for key in KEYS))
    if not row.queued_s <= row.first_token_s <= row.last_token_s:
        raise reject("first_token_ts", "is not between queued_ts and last_token_ts")
    return row


def _measured(recorded: list[Recorded]) -> dict[str, np.ndarray]:
    _, outputs, queued, first, last = (np.array(column, dtype=np.float64) for column in zip(*recorded, strict=True))
    several = outputs > 1
    return {
        "ttft_s": first - queued,
        "tpot_s": (last - first)[several] / (outputs[several] - 1),
        "e2e_s": last - queued,
    }


def _side_by_side(measured: np.ndarray, predicted: np.ndarray) -> dict[str, dict[str, float]]:
    ours, theirs = _figures(predicted[~np.isnan(predicted)]), _figures(measured)
    return {
        name: {"measured": theirs[name], "predicted": ours[name], "error": ours[name] / theirs[name] - 1}
        for name in FIGURES
        if name in theirs and name in ours
    }


def _figures(values_s: np.ndarray) -> dict[str, float]:
    if not len(values_s):
        return {}
    p50, p90, p99 = np.percentile(values_s, (50, 90, 99))
    return {"mean": float(values_s.mean()), "p50": float(p50), "p90": float(p90), "p99": float(p99)}


def write_replay(found: Replay, folder: Path) -> Path:
    """replay.json in a folder."""
    path = folder / "replay.json"
    write_text(path, json.dumps(found, indent=2) + "\n")
    return path
