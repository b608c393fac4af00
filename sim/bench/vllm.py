"""Result files of ``vllm bench`` (0.6's benchmark_serving to 0.33) and its relatives, which kept its field names.

Reads ``--save-result`` files (``--save-detailed`` ones with every request), the summary of ``vllm bench sweep`` (a list
of them), InferenceX's variant (percentiles p50 to p99), and the small ones of the latency and throughput benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from sim.bench.fields import known, listed, number, text, whole
from sim.bench.result import BenchResult
from sim.bench.statistics import statistics
from sim.results.definitions import Samples
from sim.results.streams import Streams, streams_of

METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2e_s"}
_STATISTIC = re.compile(r"(mean|median|std|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms")
SETTINGS = (
    "date",
    "endpoint_type",
    "backend",
    "label",
    "tokenizer_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
)


def is_serving(data: Any) -> bool:
    """Whether this is one run of the serving benchmark."""
    return isinstance(data, Mapping) and {"duration", "completed", "mean_ttft_ms", "request_throughput"} <= data.keys()


def read_serving(data: Mapping[str, Any]) -> BenchResult:
    """One run."""
    metrics: dict[str, dict[str, float]] = {}
    for name in data:
        match = _STATISTIC.fullmatch(name)
        value = number(data, name) if match else None
        if match and value is not None:
            statistic = "p50" if match[1] == "median" else match[1]
            metrics.setdefault(METRICS[match[2]], {})[statistic] = value / 1000
    return BenchResult(
        tool="vllm",
        model=text(data, "model_id"),
        settings={name: data[name] for name in SETTINGS if name in data},
        completed=whole(data, "completed"),
        failed=whole(data, "failed"),
        duration_s=number(data, "duration"),
        prompt_tokens=whole(data, "total_input_tokens"),
        output_tokens=whole(data, "total_output_tokens"),
        requests_per_s=number(data, "request_throughput"),
        output_tokens_per_s=number(data, "output_throughput"),
        total_tokens_per_s=number(data, "total_token_throughput"),
        goodput_requests_per_s=number(data, "request_goodput" if "request_goodput" in data else "request_goodput:"),
        most_output_tokens_per_s=number(data, "max_output_tokens_per_s"),
        most_concurrent=whole(data, "max_concurrent_requests"),
        metrics=metrics,
        streams=_streams(data),
        notices=_notices(data),
    )


def _notices(data: Mapping[str, Any]) -> tuple[str, ...]:
    silent = sum(output == 0 for output in listed(data, "output_lens"))
    if not silent:
        return ()
    return (f"{silent} requests got no token: the file's own TTFT counts them as 0 s, its streams here leave them out",)


def _streams(data: Mapping[str, Any]) -> Streams | None:
    """Every answer, where the file was saved in detail; requests that failed are left out, as in its statistics.

    Older files have no ``start_times``: all are sent at 0 then.
    """
    ttfts, itls = listed(data, "ttfts"), listed(data, "itls")
    prompts, outputs = listed(data, "input_lens"), listed(data, "output_lens")
    if not ttfts or not len(ttfts) == len(itls) == len(prompts) == len(outputs):
        return None
    errors = listed(data, "errors") or [""] * len(ttfts)
    starts = listed(data, "start_times") or [0.0] * len(ttfts)
    first_s = min(starts)
    return streams_of(
        (sent - first_s, _chunks(sent - first_s + ttft, gaps), _tokens(gaps, output), prompt, output)
        for sent, ttft, gaps, prompt, output, error in zip(starts, ttfts, itls, prompts, outputs, errors, strict=True)
        if not error and output > 0
    )


def _chunks(first_s: float, gaps_s: Sequence[float]) -> list[float]:
    return list(accumulate(gaps_s, initial=first_s))


def _tokens(gaps: Sequence[float], output_tokens: int) -> list[int] | None:
    """One per chunk where there are as many chunks as tokens; else nobody wrote down which chunk had several."""
    return [1] * output_tokens if len(gaps) + 1 == output_tokens else None


def is_latency(data: Any) -> bool:
    """``vllm bench latency``."""
    return isinstance(data, Mapping) and {"avg_latency", "latencies"} <= data.keys()


def read_latency(data: Mapping[str, Any]) -> BenchResult:
    """Seconds of whole batches."""
    found = statistics(Samples(np.array(listed(data, "latencies"), dtype=np.float64)))
    mean = number(data, "avg_latency")
    given = {f"p{name}": float(value) for name, value in (data.get("percentiles") or {}).items()}
    return BenchResult(tool="vllm", metrics={"e2e_s": {**found, **known({"mean": mean}), **given}})


def is_throughput(data: Any) -> bool:
    """``vllm bench throughput``."""
    return isinstance(data, Mapping) and {"elapsed_time", "num_requests", "tokens_per_second"} <= data.keys()


def read_throughput(data: Mapping[str, Any]) -> BenchResult:
    """All requests at once, without a client."""
    return BenchResult(
        tool="vllm",
        completed=whole(data, "num_requests"),
        duration_s=number(data, "elapsed_time"),
        requests_per_s=number(data, "requests_per_second"),
        total_tokens_per_s=number(data, "tokens_per_second"),
    )


def to_serving(result: BenchResult) -> dict[str, Any]:
    """The file ``vllm bench serve --save-result --save-detailed`` would write; absent where nothing is known."""
    data: dict[str, Any] = {
        **{name: result.settings[name] for name in SETTINGS if name in result.settings},
        "model_id": result.model,
        "duration": result.duration_s,
        "completed": result.completed,
        "failed": result.failed,
        "total_input_tokens": result.prompt_tokens,
        "total_output_tokens": result.output_tokens,
        "request_throughput": result.requests_per_s,
        "request_goodput": result.goodput_requests_per_s,
        "output_throughput": result.output_tokens_per_s,
        "total_token_throughput": result.total_tokens_per_s,
        "max_output_tokens_per_s": result.most_output_tokens_per_s,
        "max_concurrent_requests": result.most_concurrent,
    }
    for short, name in METRICS.items():
        for statistic, value in result.metrics.get(name, {}).items():
            if statistic in {"mean", "std"} or statistic[0] == "p":
                data[f"{statistic}_{short}_ms"] = value * 1000
                if statistic == "p50":
                    data[f"median_{short}_ms"] = value * 1000
    if result.streams is not None:
        data |= _detailed(result.streams)
    return {name: value for name, value in data.items() if value is not None}


def _detailed(streams: Streams) -> dict[str, Any]:
    chunks = np.split(streams.chunk_s, streams.offsets[1:-1]) if len(streams) else []
    return {
        "input_lens": streams.prompt_tokens.tolist(),
        "output_lens": streams.output_tokens.tolist(),
        "ttfts": (streams.first_s - streams.sent_s).tolist(),
        "itls": [np.diff(times_s).tolist() for times_s in chunks],
        "start_times": streams.sent_s.tolist(),
        "errors": [""] * len(streams),
    }
