"""Figures carry the right figures, and survive every kind of run."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sim.report import figures
from sim.report.figures.breakdown import mean_parts
from sim.report.figures.load import sweep_lines
from sim.report.figures.series import StepSeries
from sim.report.figures.style import plain, png

PNG_HEAD = b"\x89PNG"


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def broken(requests: pd.DataFrame) -> pd.DataFrame:
    """Every request was rejected."""
    times = [name for name in requests.columns if name.endswith("_s") and name != "arrival_s"]
    return requests.assign(status="rejected", **dict.fromkeys(times, np.nan))


def test_cdf_reaches_every_percentile(requests: pd.DataFrame) -> None:
    figure = figures.latency_cdf(requests, {"ttft_s": 0.5, "tpot_s": None})
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    ttft_ms = np.sort(requests["ttft_s"].dropna()) * 1e3
    assert np.array_equal(x[1:], ttft_ms)
    assert y[0] == 0
    assert y[-1] == 100
    marks = axes.collections[0].get_offsets()
    assert np.allclose(marks[:, 0], np.percentile(ttft_ms, (50, 90, 99)))
    assert list(axes.lines[1].get_xdata()) == [500.0, 500.0]
    assert axes.get_xlabel() == "TTFT (ms)"
    assert axes.get_title(loc="left").splitlines()[1].startswith("SLO 500 ms (dashed), met by ")
    assert len(figure.axes[1].lines) == 1
    assert figure.axes[1].get_title(loc="left").endswith("no SLO")


def test_cdf_title_says_how_p99_stands_to_the_slo(requests: pd.DataFrame) -> None:
    p99_s = float(requests["ttft_s"].quantile(0.99))
    assert title(figures.latency_cdf(requests, {"ttft_s": p99_s / 1.25})).endswith(", 25 % above the SLO")
    assert title(figures.latency_cdf(requests, {"ttft_s": p99_s / 0.75})).endswith(", 25 % below the SLO")
    assert title(figures.latency_cdf(requests, {"ttft_s": p99_s / 4})).endswith(", 4 times the SLO")


def test_cdf_is_logarithmic_only_over_wide_ranges(requests: pd.DataFrame) -> None:
    narrow = requests.assign(ttft_s=np.linspace(1, 10, len(requests)))
    wide = requests.assign(ttft_s=np.geomspace(0.01, 10, len(requests)))
    assert figures.latency_cdf(narrow).axes[0].get_xscale() == "linear"
    assert figures.latency_cdf(wide).axes[0].get_xscale() == "log"


def test_cdf_of_many_requests_draws_few_points_and_both_ends(requests: pd.DataFrame) -> None:
    many = pd.DataFrame({"ttft_s": np.random.default_rng(0).exponential(1, 200_000)})
    x, y = figures.latency_cdf(many).axes[0].lines[0].get_data()
    assert len(x) < 2000
    assert (x[0], x[-1]) == pytest.approx((many["ttft_s"].min() * 1e3, many["ttft_s"].max() * 1e3))
    assert y[-1] == 100


def test_slo_far_beyond_every_request_is_named_but_not_drawn(requests: pd.DataFrame) -> None:
    axes = figures.latency_cdf(requests, {"ttft_s": 3600.0}).axes[0]
    assert len(axes.lines) == 1
    assert "SLO 60 min, met by 100 %" in axes.get_title(loc="left")


def test_breakdown_bars_sum_to_the_mean(requests: pd.DataFrame) -> None:
    figure = figures.latency_breakdown(requests)
    left, right = figure.axes
    ends = [max(bar.get_x() + bar.get_width() for bar in pair) for pair in zip(*left.containers, strict=True)]
    assert ends[0] == pytest.approx(requests["ttft_s"].mean() * 1e3)
    per_token = [max(bar.get_x() + bar.get_width() for bar in pair) for pair in zip(*right.containers, strict=True)]
    assert per_token[0] == pytest.approx(requests["tpot_s"].mean() * 1e3)
    assert legend_of(left) == ["dispatch", "queue", "prefill", "prefill stalled"]
    assert title(figure).startswith("Prefill is ")


def test_breakdown_around_p99_is_near_p99(requests: pd.DataFrame) -> None:
    rows = mean_parts(requests, "ttft_s", ["dispatch_s", "queue_s", "prefill_s", "prefill_stall_s"])
    assert rows is not None
    low, high = np.nanpercentile(requests["ttft_s"], (98, 100))
    assert low < rows[1].sum() < high


def test_bounds_bar_is_whole(summary: dict[str, Any]) -> None:
    figure = figures.bound_shares(summary)
    widths = [container[0].get_width() for container in figure.axes[0].containers]
    assert widths == pytest.approx([12, 61, 0, 7, 20])
    assert title(figure) == "Memory bounds 76.2 % of busy time; idle 20 % of the time"
    assert "communication 0 %" in legend_of(figure.axes[0])


def test_idle_fleet_is_called_idle() -> None:
    idle = {"bound": {"compute": 0.0, "memory": 0.0, "communication": 0.0, "host": 0.0, "idle": 1.0}}
    assert title(figures.bound_shares(idle)) == "The fleet was idle throughout"
    assert title(figures.bound_shares({})) == "The fleet was idle throughout"


def test_series_keeps_every_token_and_every_second(steps: pd.DataFrame) -> None:
    series = StepSeries.of(steps, 173)
    tokens = series.rate(series.column("prefill_tokens")).sum() * series.width_s
    assert tokens == pytest.approx(steps["prefill_tokens"].sum())
    busy_s = sum(series.bound(name).sum() for name in ("compute", "memory", "host")) * series.width_s
    assert busy_s == pytest.approx(steps["duration_s"].sum())


def test_series_by_hand() -> None:
    """Two replicas, two steps: [0, 2) with 3 running and [1, 3) with 5, in bins of one second."""
    table = pd.DataFrame(
        {"start_s": [0.0, 1.0], "duration_s": [2.0, 2.0], "running": [3, 5], "prefill_tokens": [20, 0]}
    )
    series = StepSeries.of(table, 4, until_s=4.0)
    assert list(series.level(series.column("running"))) == pytest.approx([3, 8, 5, 0])
    assert list(series.rate(series.column("prefill_tokens"))) == pytest.approx([10, 10, 0, 0])


def test_timeline_draws_kv_as_a_share_of_all_replicas(steps: pd.DataFrame, requests: pd.DataFrame) -> None:
    constant = steps.assign(kv_blocks_used=50, duration_s=0.01, start_s=steps.groupby("replica").cumcount() * 0.01)
    figure = figures.timeline(constant, requests.iloc[:0], kv_blocks=200)
    assert figure.axes[1].lines[0].get_ydata() == pytest.approx(np.full(400, 25.0))
    assert figure.axes[1].get_ylabel() == "KV in use (%)"
    assert title(figure).endswith("KV cache 25 % full at its peak")
    assert figures.timeline(constant, requests, None).axes[1].get_ylabel() == "KV blocks"


def test_timeline_marks_what_was_turned_away(steps: pd.DataFrame, requests: pd.DataFrame) -> None:
    axes = figures.timeline(steps, requests).axes[4]
    assert legend_of(axes) == ["by time sent", "turned away"]
    assert len(axes.collections[1].get_offsets()) == 3


def test_throughput_of_a_run(steps: pd.DataFrame, requests: pd.DataFrame) -> None:
    figure = figures.throughput_latency(requests, steps)
    decode_ms = figure.axes[1].collections[0].get_offsets()[:, 1]
    assert decode_ms.min() > 8
    assert decode_ms.max() < 20
    assert "tokens/s decoded" in title(figure)


def test_sweep_lines_run_along_the_load(sweep_frame: pd.DataFrame) -> None:
    lines = sweep_lines(sweep_frame)
    assert [line.label for line in lines] == ["tensor_parallel=1", "tensor_parallel=2"]
    assert list(lines[1].table["traffic.arrivals.rate"]) == [4, 8, 16]
    figure = figures.throughput_latency(sweep_frame)
    x, y = figure.axes[1].lines[1].get_data()
    assert list(x) == pytest.approx([1005, 2005, 4005])
    assert list(y) == pytest.approx([450, 850, 1650])
    assert figure.axes[1].get_ylabel() == "TTFT p99 (ms)"
    assert title(figure) == "Most throughput with tensor_parallel=2: 4,005 output tokens/s, at TTFT p99 1.65 s"


@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 1), slice(4, 6)], ids=["none", "one", "failed"])
def test_sweep_of_few_points(sweep_frame: pd.DataFrame, rows: slice) -> None:
    assert png(figures.throughput_latency(sweep_frame.iloc[rows]), 50).startswith(PNG_HEAD)


def test_roofline_places_operators_under_the_roof(operators: dict[str, list[SimpleNamespace]]) -> None:
    figure = figures.roofline(operators, peak_flops_per_s=989e12, hbm_bytes_per_s=3.35e12)
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert (x[1], y[1]) == pytest.approx((989 / 3.35, 989))
    prefill = axes.collections[0].get_offsets()
    assert len(prefill) == 7
    assert list(prefill[0]) == pytest.approx([481e9 / 310e6, 481e9 / 700e-6 / 1e12])
    assert all(rate <= min(989, intensity * 3.35) * 1.001 for intensity, rate in prefill)
    assert "all-reduce (prefill) 2.17 %" in axes.get_xlabel()
    assert legend_of(axes)[0].startswith("prefill")
    assert title(figure).startswith("Memory bounds ")


def test_roofline_believes_operators_about_their_bound() -> None:
    operator = SimpleNamespace(name="gemm", count=1, flops=1e12, hbm_bytes=1e6, seconds=1e-3, bound="memory")
    figure = figures.roofline([operator], peak_flops_per_s=1e15, hbm_bytes_per_s=1e12)
    assert title(figure) == "Memory bounds 100 % of step time"


def test_roofline_labels_do_not_cover_each_other(operators: dict[str, list[SimpleNamespace]]) -> None:
    figure = figures.roofline(operators, peak_flops_per_s={"bf16": 989e12, "fp8": 1979e12}, hbm_bytes_per_s=3.35e12)
    figure.draw_without_rendering()
    from matplotlib.text import Annotation, Text

    renderer = figure.canvas.get_renderer()
    named = [text for text in figure.axes[0].texts if isinstance(text, Annotation) and text.get_text().endswith("%")]
    boxes = [Text.get_window_extent(text, renderer) for text in named]
    assert len(named) == 14
    assert not any(box.overlaps(other) for index, box in enumerate(boxes) for other in boxes[:index])


def test_roofline_without_operators() -> None:
    figure = figures.roofline([], peak_flops_per_s=1e15, hbm_bytes_per_s=3e12)
    assert title(figure) == "No operator has both FLOPs and HBM traffic"


def test_every_figure_of_odd_runs(requests: pd.DataFrame, steps: pd.DataFrame, summary: dict[str, Any]) -> None:
    """No request, all rejected, one request, all alike, enormous values: a figure, and no warning."""
    one = requests.iloc[10:11]
    times = [name for name in requests.columns if name.endswith("_s")]
    runs = {
        "empty": (requests.iloc[:0], steps.iloc[:0]),
        "rejected": (broken(requests), steps),
        "one": (one, steps.iloc[:1]),
        "alike": (pd.concat([one] * 9, ignore_index=True), steps),
        "huge": (requests.assign(**{name: requests[name] * 1e9 for name in times}), steps),
        "one-token": (requests.assign(tpot_s=np.nan, output_tokens=1), steps),
    }
    for table, taken in runs.values():
        drawn = [
            figures.latency_cdf(table, summary["slo"]),
            figures.latency_breakdown(table),
            figures.timeline(taken, table, 100),
            figures.throughput_latency(table, taken),
            figures.overview(summary, table, taken),
        ]
        assert all(png(figure, 40).startswith(PNG_HEAD) for figure in drawn)


def test_cdf_says_why_a_panel_is_empty(requests: pd.DataFrame) -> None:
    figure = figures.latency_cdf(requests.assign(tpot_s=np.nan))
    assert figure.axes[1].texts[0].get_text() == "no TPOT: undefined for every request"
    assert len(figure.axes[0].get_yticks()) > 2
    assert title(figures.latency_cdf(requests.iloc[:0])) == "No request got a token"


def test_names_the_font_cannot_draw_warn_nobody(sweep_frame: pd.DataFrame) -> None:
    odd = sweep_frame.rename(columns={"deployment.tensor_parallel": "model"})
    odd["model"] = odd["model"].map({1: "模型 $x^$ " * 9, 2: "_модель"})
    assert png(figures.throughput_latency(odd), 50).startswith(PNG_HEAD)
    assert plain("模型 a") == "?? a"


def test_same_figure_same_bytes_also_in_threads(requests: pd.DataFrame) -> None:
    wanted, found = png(figures.latency_breakdown(requests), 60), []
    threads = [
        threading.Thread(target=lambda: found.append(png(figures.latency_breakdown(requests), 60))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 3


def test_overview_shows_itself_in_notebooks(
    requests: pd.DataFrame, steps: pd.DataFrame, summary: dict[str, Any]
) -> None:
    figure = figures.overview(summary, requests, steps)
    assert figure._repr_png_().startswith(PNG_HEAD)
    assert title(figure).startswith("llama-3.1-8b on 2 x h100-sxm (2 replicas), vllm 0.33: stable. TTFT p99 ")
    assert len(figure.axes) == 7


def test_printing_and_reporting_do_not_load_pyplot_or_matplotlib_early() -> None:
    code = (
        "import sys, sim.report.console, sim.report.display, sim.report.html, sim.report.perfetto, sim.report.plots\n"
        "assert 'matplotlib' not in sys.modules and 'pandas' not in sys.modules, 'too early'\n"
        "import sim.report.figures\n"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
