"""Reading result files: which tool wrote one is told by what it holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from sim.bench import aiperf, guidellm, inference_perf, reports, sglang, vllm
from sim.bench.console import TITLE, read_console
from sim.bench.result import BenchResult
from sim.errors import RidgelineError

MOST_BYTES = 2**30
"""A result file beyond is a mistake."""
CURE = (
    "give a result file of vllm bench, sglang bench_serving, guidellm, aiperf, inference-perf, llama-bench, MLPerf or "
    "llm-d"
)
Reader = Callable[[Mapping[str, Any]], BenchResult | list[BenchResult]]
OBJECTS: tuple[tuple[Callable[[Any], bool], Reader], ...] = (
    (sglang.is_sglang, sglang.read_sglang),  # its lines have most of vllm's fields too
    (vllm.is_serving, vllm.read_serving),
    (guidellm.is_guidellm, guidellm.read_guidellm),
    (inference_perf.is_inference_perf, inference_perf.read_inference_perf),
    (aiperf.is_aiperf, aiperf.read_aiperf),
    (vllm.is_latency, vllm.read_latency),
    (vllm.is_throughput, vllm.read_throughput),
    (reports.is_llmd, reports.read_llmd),
)


def read_results(path: str | Path) -> list[BenchResult]:
    """Every run that a file reports. Raises RidgelineError where it cannot be read or is of no known tool."""
    path = Path(path)
    try:
        found = _read(_content(path))
    except (OSError, ValueError, OverflowError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RidgelineError(f"{path}: cannot be read: {reason}\n  cure: {CURE}") from error
    if not found:
        raise RidgelineError(f"{path}: no run is reported in a form that is known\n  cure: {CURE}")
    return found


def _content(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError("the file is larger than 1 GiB")
    return path.read_text(encoding="utf-8")


def _read(content: str) -> list[BenchResult]:
    data = _parsed(content)
    if data is not None:
        return _objects(data)
    if TITLE in content:
        return read_console(content)
    if reports.is_mlperf(content):
        return [reports.read_mlperf(content)]
    if reports.is_llama_bench(content):
        return reports.read_llama_bench(content)
    try:
        return _objects(yaml.safe_load(content))
    except yaml.YAMLError:
        return []


def _parsed(content: str) -> Any:
    """JSON, or JSON lines as a list; None where it is neither."""
    try:
        return json.loads(content)
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()] or None
    except ValueError:
        return None


def _objects(data: Any) -> list[BenchResult]:
    if isinstance(data, list):
        if data and all(aiperf.is_record(item) for item in data):
            return [aiperf.read_records(data)]
        return [result for item in data for result in _objects(item)]
    for belongs, read in OBJECTS:
        if belongs(data):
            results = read(data)
            return results if isinstance(results, list) else [results]
    return []
