"""A small run with figures that add up, in the shape of a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")


def make_requests(n: int = 400, seed: int = 1, rejected: int = 3) -> pd.DataFrame:
    """Requests whose parts sum to TTFT and to the time after the first token."""
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.uniform(0, n / 8, n))
    parts = {
        "dispatch_s": np.full(n, 2e-3),
        "queue_s": rng.exponential(0.08, n),
        "prefill_s": rng.uniform(0.03, 0.2, n),
        "prefill_stall_s": rng.exponential(0.01, n),
    }
    output = rng.integers(1, 400, n)
    gaps = np.maximum(output - 1, 0)
    decode = {
        "decode_s": gaps * rng.uniform(0.008, 0.012, n),
        "decode_interference_s": gaps * rng.exponential(0.003, n),
        "decode_stall_s": np.where(rng.uniform(size=n) < 0.03, 0.5, 0.0) * (gaps > 0),
    }
    ttft = np.sum(list(parts.values()), axis=0)
    after = np.sum(list(decode.values()), axis=0)
    received = arrival + parts["dispatch_s"]
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(gaps > 0, after / gaps, np.nan)
    frame = pd.DataFrame(
        {
            "request_id": np.arange(n),
            "replica": np.arange(n) % 2,
            "arrival_s": arrival,
            "received_s": received,
            "scheduled_s": received + parts["queue_s"],
            "first_token_s": arrival + ttft,
            "finish_s": arrival + ttft + after,
            "prompt_tokens": rng.integers(10, 4000, n),
            "cached_tokens": 0,
            "output_tokens": output,
            "preemptions": 0,
            "status": "completed",
            "ttft_s": ttft,
            "tpot_s": tpot,
            "itl_max_s": np.where(gaps > 0, 0.05, np.nan),
            "e2e_s": ttft + after,
            **parts,
            **decode,
        }
    )
    times = [name for name in frame.columns if name.endswith("_s") and name != "arrival_s"]
    frame.loc[frame.index[:rejected], times] = np.nan
    frame.loc[frame.index[:rejected], "status"] = "rejected"
    frame.loc[frame.index[:rejected], "output_tokens"] = 0
    frame.loc[frame.index[:rejected], "replica"] = -1
    return frame


def make_steps(n: int = 3000, replicas: int = 2, seed: int = 2) -> pd.DataFrame:
    """Steps of each replica in turn without overlap, some of them prefilling, with pauses."""
    rng = np.random.default_rng(seed)
    tables = []
    for replica in range(replicas):
        duration = rng.uniform(0.008, 0.02, n)
        pauses = np.where(rng.uniform(size=n) < 0.02, 0.2, 0.0)
        prefill = np.where(rng.uniform(size=n) < 0.2, rng.integers(50, 2048, n), 0)
        decode = (20 + 15 * np.sin(np.arange(n) / 300)).astype(int) * (np.arange(n) % 50 > 0)
        bound = np.where(prefill > 500, "compute", np.where(decode < 8, "host", "memory"))
        tables.append(
            pd.DataFrame(
                {
                    "replica": replica,
                    "start_s": np.cumsum(duration + pauses) - duration,
                    "duration_s": duration * np.where(prefill > 500, 1.0, 0.999),
                    "prefill_tokens": prefill,
                    "decode_sequences": decode,
                    "output_tokens": decode,
                    "context_tokens": decode * 700,
                    "running": decode + (prefill > 0),
                    "waiting": np.maximum(0, decode - 25),
                    "kv_blocks_used": decode * 44,
                    "preemptions": 0,
                    "bound": bound,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def distribution(values: pd.Series) -> dict[str, float | None]:
    values = values.dropna()
    if values.empty:
        return dict.fromkeys(STATISTICS)
    quantiles = [float(values.quantile(q)) for q in (0.5, 0.9, 0.95, 0.99)]
    return dict(zip(STATISTICS, [float(values.mean()), *quantiles, float(values.max())], strict=True))


def make_summary(requests: pd.DataFrame, **changes: Any) -> dict[str, Any]:
    """The object of ``sim run --json`` for these requests."""
    done = int((requests["status"] == "completed").sum())
    return {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"name": "vllm", "version": "0.33"},
        "deployment": {"replicas": 2, "tensor_parallel": 1, "router": "round-robin"},
        "seed": 7,
        "partial": False,
        "requests": {
            "submitted": len(requests),
            "completed": done,
            "rejected": len(requests) - done,
            "unfinished": 0,
            "failed": 0,
        },
        "duration_s": 51.2,
        "measured_window_s": [0.0, 51.2],
        "offered": {"requests_per_s": 8.02},
        "throughput": {"requests_per_s": 7.75, "output_tokens_per_s": 1534.5, "total_tokens_per_s": 17034.0},
        **{name: distribution(requests[name]) for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s")},
        "itl_s": {"mean": 0.0112, "p50": 0.0101, "p90": 0.0123, "p95": 0.0198, "p99": 0.051, "max": 0.512},
        "slo": {
            "ttft_s": 0.5,
            "tpot_s": 0.05,
            "e2e_s": None,
            "target_attainment": 0.99,
            "attainment": 0.9825,
            "goodput_requests_per_s": 7.68,
        },
        "preemptions": 4,
        "kv": {
            "capacity_tokens": 412_000,
            "capacity_blocks": 25_750,
            "peak_utilization": 0.0598,
            "prefix_hit_rate": 0.125,
        },
        "bound": {"compute": 0.12, "memory": 0.61, "communication": 0.0, "host": 0.07, "idle": 0.2},
        "verdict": "stable",
        "verdict_reason": "mean queue 0.9 requests in the second quarter of arrivals, 1.1 in the last",
        "assumed": [
            {"what": "KV capacity", "value": "412,000 tokens", "why": "80 GiB x 0.92 - weights - activations"},
            {"what": "engine version", "value": "0.33", "why": "none given: the newest"},
        ],
        **changes,
    }


def make_sweep() -> pd.DataFrame:
    """Three rates by two sizes by two replications, one point refused."""
    rows = []
    for size in (1, 2):
        for rate in (4, 8, 16):
            for replication in (0, 1):
                row = {"traffic.arrivals.rate": rate, "deployment.tensor_parallel": size, "replication": replication}
                if (size, rate) == (1, 16):
                    rows.append({**row, "seed": replication, "error": "does not fit\n  cure: more GPUs"})
                    continue
                rows.append(
                    {
                        **row,
                        "seed": replication,
                        "error": None,
                        "throughput.output_tokens_per_s": 250.0 * rate + 10 * replication,
                        "throughput.requests_per_s": 1.0 * rate,
                        "ttft_s.p50": 0.05 * rate / size,
                        "ttft_s.p99": 0.2 * rate / size + 0.1 * replication,
                        "tpot_s.p50": 0.01 + 0.001 * rate / size,
                        "tpot_s.p99": 0.02 + 0.001 * rate / size,
                        "slo.attainment": 0.99,
                        "verdict": "overloaded" if rate == 16 else "stable",
                    }
                )
    return pd.DataFrame(rows)


@pytest.fixture
def requests() -> pd.DataFrame:
    return make_requests()


@pytest.fixture
def steps() -> pd.DataFrame:
    return make_steps()


@pytest.fixture
def summary(requests: pd.DataFrame) -> dict[str, Any]:
    return make_summary(requests)


@pytest.fixture
def sweep_frame() -> pd.DataFrame:
    return make_sweep()


@pytest.fixture
def empty_requests(requests: pd.DataFrame) -> pd.DataFrame:
    return requests.iloc[:0]


@pytest.fixture
def empty_steps(steps: pd.DataFrame) -> pd.DataFrame:
    return steps.iloc[:0]


@pytest.fixture
def operators() -> dict[str, list[SimpleNamespace]]:
    """One layer's operators in prefill and decode, as an 8B model on a large GPU has them."""

    def operator(name: str, gflop: float, mbytes: float, us: float) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, count=32, flops=gflop * 1e9, hbm_bytes=mbytes * 1e6, seconds=us * 1e-6, dtype="bf16"
        )

    return {
        "prefill": [
            operator("qkv", 103, 90, 160),
            operator("attention prefill", 34, 50, 90),
            operator("output projection", 69, 67, 110),
            operator("gate and up", 481, 310, 700),
            operator("down", 240, 190, 350),
            operator("norms", 0.05, 134, 60),
            operator("lm head", 1.05, 1050, 330),
            operator("all-reduce", 0, 0, 40),
        ],
        "decode": [
            operator("qkv", 1.6, 51, 20),
            operator("attention decode", 0.55, 137, 52),
            operator("output projection", 1.07, 34, 14),
            operator("gate and up", 7.5, 236, 82),
            operator("down", 3.76, 118, 42),
            operator("norms", 0.001, 2, 5),
            operator("lm head", 33.6, 1055, 360),
        ],
    }
