"""What the commands print, at two widths."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sim.report import console

NULLS = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))


def printed(width: int, show: Any, *args: Any, terminal: bool = False) -> str:
    stream = io.StringIO()
    made = (
        Console(file=stream, width=width, force_terminal=True, color_system="standard", highlight=False, markup=False)
        if terminal
        else console.make_console(stream, width=width)
    )
    show(*args, made)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def test_summary_at_120_columns(summary: dict[str, Any]) -> None:
    text = printed(120, console.print_summary, summary)
    assert text.splitlines()[:8] == [
        "llama-3.1-8b on 2 x h100-sxm (2 replicas), vllm 0.33",
        "stable: mean queue 0.9 requests in the second quarter of arrivals, 1.1 in the last",
        "",
        "requests     397 of 400 completed, 3 rejected",
        "load         8.02 requests/s sent, 7.75 requests/s completed, over 51.2 s",
        "throughput   1,534 output tokens/s, 17,034 with prompts",
        "SLO          TTFT 500 ms, TPOT 50 ms: met by 98.2 %, missing the target of 99 %; goodput 7.68 requests/s",
        "KV cache     412,000 tokens, at most 5.98 % used, prefix hits 12.5 %, 4 preemptions",
    ]
    assert "ITL (ms)     11.2   10.1   12.3   19.8     51    512" in text
    assert "  memory         61 %  ████████████████████████" in text
    assert "  KV capacity: 412,000 tokens (80 GiB x 0.92 - weights - activations)" in text


def test_summary_at_60_columns_wraps_and_loses_nothing(summary: dict[str, Any]) -> None:
    text = printed(60, console.print_summary, summary)
    assert max(map(len, text.splitlines())) <= 60
    assert text.split() != []
    words = printed(200, console.print_summary, summary).replace("█", "").split()
    assert text.replace("█", "").split() == words


def test_no_colour_without_a_terminal(summary: dict[str, Any]) -> None:
    assert "\x1b" not in printed(80, console.print_summary, summary)


def test_verdict_is_coloured_on_a_terminal(summary: dict[str, Any]) -> None:
    overloaded = {**summary, "verdict": {"state": "overloaded", "reason": "the queue grew"}}
    assert "\x1b[1;32mstable\x1b[0m" in printed(80, console.print_summary, summary, terminal=True)
    text = printed(80, console.print_summary, overloaded, terminal=True)
    assert "\x1b[1;31moverloaded\x1b[0m: the queue grew" in text


def test_null_figures_are_dashes(summary: dict[str, Any]) -> None:
    empty = {
        **summary,
        **dict.fromkeys(("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"), NULLS),
        "requests": {"submitted": 3, "completed": 0, "rejected": 0, "failed": 0, "unfinished": 3},
        "throughput": {"requests_per_s": None, "output_tokens_per_s": None, "total_tokens_per_s": None},
        "offered": {"requests_per_s": None},
        "slo": {"ttft_s": None, "tpot_s": None, "e2e_s": None, "target_attainment": None, "attainment": None},
        "kv": {"capacity_tokens": None, "peak_utilization": None, "prefix_hit_rate": None},
        "partial": True,
        "assumed": [],
    }
    text = printed(80, console.print_summary, empty)
    assert "0 of 3 completed, 3 unfinished" in text
    assert "TTFT (s)        -      -      -      -      -      -" in text
    assert "SLO          none set" in text
    assert "KV cache     not modelled" in text
    assert "interrupted: the figures cover what was simulated until then" in text
    assert "assumed" not in text


def test_markup_and_unicode_in_names_are_shown_as_they_are(summary: dict[str, Any]) -> None:
    odd = {**summary, "model": "[red]модель[/red] :smile: 模型"}
    assert "[red]модель[/red] :smile: 模型 on" in printed(120, console.print_summary, odd)


def test_a_terminal_that_lacks_a_sign_gets_another(summary: dict[str, Any]) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    console.print_summary({**summary, "model": "模型", "queue_s": {**NULLS, "p50": 5e-6}}, console.make_console(stream))
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "?? on 2 x h100-sxm" in text
    assert "####" in text
    assert "queue (?s)" in text


MODEL = {
    "name": "llama-3.1-8b",
    "parameters": 8_030_261_248,
    "active_parameters": 8_030_261_248,
    "weight_bytes": 16_060_522_496,
    "kv": {
        "growing_bytes_per_token": 131_072,
        "windows": [{"window_tokens": 4096, "bytes_per_token": 65_536}],
        "index_bytes_per_token": 0,
        "state_bytes_per_request": 1 << 20,
    },
    "per_gpu": {"weight_bytes": 8_030_261_248, "kv_bytes_per_token": 65_536, "kv_bytes_per_request": 536_870_912},
    "flops_per_token": 15.0e9,
    "source": "preset",
}


@pytest.mark.parametrize("width", [60, 120])
def test_model(width: int) -> None:
    text = printed(width, console.print_models, MODEL)
    assert text.splitlines()[0] == "llama-3.1-8b"
    for line in (
        "parameters         8.03 billion",
        "active parameters  8.03 billion per token",
        "weights            15 GiB",
        "KV, growing        128 KiB per token",
        "KV, window         64 KiB per token, up to 4,096 tokens",
        "state              1 MiB per request",
        "weights per GPU    7.48 GiB",
        "KV per GPU         512 MiB per request",
        "flops per token    15 GFLOP",
        "source             preset",
    ):
        assert line in text.splitlines()
    assert "index" not in text


def test_hardware() -> None:
    profile = {
        "name": "h100-sxm",
        "product": "H100 SXM5 80GB",
        "vendor": "NVIDIA",
        "architecture": "Hopper",
        "peak_flops_per_s": {"bf16": 989e12, "fp8": 1979e12},
        "hbm_bytes_per_s": 3.35e12,
        "memory_bytes": 85_017_493_504,
        "ridge_flops_per_byte": {"bf16": 295.2, "fp8": 590.7},
        "l2_bytes": 52_428_800,
        "links": {
            "scale_up": {"name": "NVLink4", "bytes_per_s": 450e9, "pair_bytes_per_s": 150e9, "devices": 8},
            "pcie_bytes_per_s": 64e9,
            "network_bytes_per_s": None,
        },
        "power_w": 700.0,
        "price": {"usd_per_hour": 2.95, "source": "a catalog"},
        "calibration": {
            "source": "measured kernels",
            "date": "2026-01-02",
            "calibrated": True,
            "error": {"gemm.bf16": 0.072},
        },
        "sources": {"hbm_bytes_per_s": "product page"},
        "notes": ["one", "two"],
    }
    assert printed(100, console.print_hardware, profile).splitlines() == [
        "h100-sxm",
        "device         NVIDIA H100 SXM5 80GB (Hopper)",
        "memory         79.2 GiB",
        "bandwidth      3.35 TB/s",
        "peak bf16      989 TFLOP/s, ridge point 295 FLOP/byte",
        "peak fp8       1.98 PFLOP/s, ridge point 591 FLOP/byte",
        "scale-up link  NVLink4, 450 GB/s each of 8 devices, 150 GB/s between two",
        "PCIe           64 GB/s",
        "power          700 W",
        "price          2.95 USD/h (a catalog)",
        "efficiency     measured on this device, 2026-01-02",
        "its source     measured kernels",
        "its error      gemm.bf16 7.2 %",
        "l2             50 MiB",
        "sources hbm    product page",
        "notes          one; two",
    ]


def test_hardware_of_which_little_is_known() -> None:
    text = printed(60, console.print_hardware, {"name": "x", "calibration": {"calibrated": False}})
    assert text.splitlines() == [
        "x",
        "memory       -",
        "bandwidth    -",
        "efficiency   borrowed, not measured on this device",
    ]


def test_sweep_averages_replications_and_names_what_cannot_run(sweep_frame: pd.DataFrame) -> None:
    text = printed(120, console.print_sweep, sweep_frame, None)
    lines = text.splitlines()
    assert lines[0].split("  ")[:3] == ["rate", "tensor_parallel", "TTFT p99"]
    assert len(lines) == 1 + 5 + 1
    assert lines[1].split()[:6] == ["4", "1", "850", "ms", "24", "ms"]
    assert "1,005" in lines[1]
    assert "overloaded" in lines[5]
    assert lines[-1] == "rate=16, tensor_parallel=1 cannot run: does not fit"


def test_sweep_at_60_columns_leaves_columns_out(sweep_frame: pd.DataFrame) -> None:
    text = printed(60, console.print_sweep, sweep_frame, ["traffic.arrivals.rate", "deployment.tensor_parallel"])
    assert max(map(len, text.splitlines())) <= 60
    assert "TTFT p99" in text
    assert "requests/s" not in text


def test_sweep_where_nothing_ran(sweep_frame: pd.DataFrame) -> None:
    failed = sweep_frame[sweep_frame["error"].notna()]
    text = printed(80, console.print_sweep, failed, None)
    assert text.splitlines()[-1] == "rate=16, tensor_parallel=1 cannot run: does not fit"


def test_list_is_one_name_a_line_in_a_pipe_and_columns_on_a_terminal() -> None:
    names = [f"model-{index}" for index in range(6)]
    assert printed(60, console.print_list, names).splitlines() == names
    assert printed(40, console.print_list, names, terminal=True).splitlines()[0] == "model-0  model-1  model-2  model-3"
