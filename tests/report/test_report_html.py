"""The report and the notebook fragment: whole, self-contained, and safe whatever a scenario is called."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sim import __version__
from sim.errors import RidgelineError
from sim.report.display import result_html
from sim.report.html import html
from sim.report.plots import Plots

EVIL = '<script>alert("x")</script>"><img src=http://evil.example onerror=alert(1)>'
VOID = {"meta", "img", "br", "link", "hr", "input"}


class Page(HTMLParser):
    """Elements of a page, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def make_result(summary: dict[str, Any], requests: pd.DataFrame, steps: pd.DataFrame, **loaded: Any) -> SimpleNamespace:
    scenario = {"model": summary["model"], "traffic": {"arrivals": {"process": "poisson", "rate": 8}}}
    known = {
        "data": scenario,
        "file": "workloads/chat.yaml",
        "spec": SimpleNamespace(measure=SimpleNamespace(warmup=0)),
    }
    return SimpleNamespace(
        summary=summary,
        requests=requests,
        steps=steps,
        operators={},
        hardware=SimpleNamespace(peak_flops_per_s={"bf16": 989e12}, hbm_bytes_per_s=3.35e12),
        loaded=SimpleNamespace(**{**known, **loaded}),
    )


@pytest.fixture
def result(summary: dict[str, Any], requests: pd.DataFrame, steps: pd.DataFrame) -> SimpleNamespace:
    return make_result(summary, requests, steps)


def test_report_has_the_figures_and_the_scenario(result: SimpleNamespace) -> None:
    page = Page(html(result))
    for part in (
        "llama-3.1-8b on 2 x h100-sxm (2 replicas), vllm 0.33",
        "stable : mean queue 0.9 requests",
        "397 of 400 completed, 3 rejected",
        "TTFT 500 ms, TPOT 50 ms: met by 98.2 %, missing the target of 99 %",
        "ITL (ms) 11.2 10.1 12.3 19.8 51 512",
        "KV capacity 412,000 tokens 80 GiB x 0.92 - weights - activations",
        "workloads/chat.yaml",
        "process: poisson",
        f"Simulated by Ridgeline {__version__} with the rules of vllm 0.33, seed 7",
    ):
        assert part in page.text
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(pictures) == 5
    for attributes in pictures:
        head, _, data = str(attributes["src"]).partition(",")
        assert head == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
        assert attributes["alt"]
    assert sum(tag == "figcaption" for tag, _ in page.elements) == 5


def test_report_needs_nothing_else_and_is_small(result: SimpleNamespace) -> None:
    text = html(result)
    page = Page(text)
    assert len(text) < 2_000_000
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert not re.search(r"(src|href)\s*=\s*[\"']?\s*(https?:)?//", text)
    assert "http" not in re.sub(r"http-equiv|base64,[^\"]*", "", text)
    assert "url(" not in text


def test_report_is_reproducible(result: SimpleNamespace) -> None:
    assert html(result) == html(result)


def test_untrusted_names_stay_text(requests: pd.DataFrame, steps: pd.DataFrame, summary: dict[str, Any]) -> None:
    evil = {
        **summary,
        "model": EVIL,
        "hardware": EVIL,
        "engine": EVIL,
        "verdict": {"state": EVIL, "reason": EVIL},
        "assumed": [{"what": EVIL, "value": EVIL, "why": EVIL}, EVIL],
    }
    page = Page(html(make_result(evil, requests, steps, data={EVIL: EVIL}, file=EVIL)))
    fragment = Page(result_html(evil))
    for shown in (page, fragment):
        assert "script" not in {tag for tag, _ in shown.elements}
        assert all("onerror" not in attributes for _, attributes in shown.elements)
        assert EVIL in shown.text


def test_report_of_a_run_without_requests_or_slo(
    summary: dict[str, Any], empty_requests: pd.DataFrame, empty_steps: pd.DataFrame
) -> None:
    nulls = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    bare = {
        **summary,
        **dict.fromkeys(("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"), nulls),
        "slo": {"ttft_s": None, "tpot_s": None, "e2e_s": None, "target_attainment": None, "attainment": None},
        "partial": True,
        "assumed": [],
    }
    page = Page(html(make_result(bare, empty_requests, empty_steps)))
    assert "Interrupted: the figures cover" in page.text
    assert "TTFT (s) - - - - - -" in page.text
    assert "none set" in page.text
    assert "Assumed" not in page.text


def test_report_shows_the_roofline_where_there_are_operators(
    result: SimpleNamespace, operators: dict[str, list[SimpleNamespace]]
) -> None:
    assert ("figure", {"id": "roofline"}) not in Page(html(result)).elements
    result.operators = operators
    assert ("figure", {"id": "roofline"}) in Page(html(result)).elements


def test_notebook_fragment(summary: dict[str, Any]) -> None:
    page = Page(result_html(summary))
    assert "TTFT (ms) 213 203 330 376 579 684" in page.text
    assert "compute 12 %, memory 61 %, communication 0 %, host 7 %, idle 20 % of the fleet's time" in page.text
    widths = [str(attributes["style"]) for tag, attributes in page.elements if tag == "div" and "title" in attributes]
    assert widths[1].startswith("width: 61.000%")
    harmless = {"div", "span", "table", "tr", "th", "td", "details", "summary", "ul", "li"}
    assert {tag for tag, _ in page.elements} <= harmless


def test_plots_leave_out_the_warm_up(summary: dict[str, Any], requests: pd.DataFrame, steps: pd.DataFrame) -> None:
    for warmup, left in ((100, requests.iloc[100:]), (20.0, requests[requests["arrival_s"] >= 20])):
        spec = SimpleNamespace(measure=SimpleNamespace(warmup=warmup))
        plots = Plots(make_result(summary, requests, steps, spec=spec))
        x, _ = plots.latency().axes[0].lines[0].get_data()
        assert len(x) == 1 + left["ttft_s"].notna().sum()


def test_plots_have_every_figure(result: SimpleNamespace, operators: dict[str, list[SimpleNamespace]]) -> None:
    plots = Plots(result)
    assert list(plots.all()) == ["latency", "breakdown", "bounds", "timeline", "throughput_latency"]
    assert plots.all()["timeline"].axes[1].get_ylabel() == "KV in use (%)"
    assert len(plots().axes) == 7
    with pytest.raises(RidgelineError, match="linear"):
        plots.roofline()
    result.operators = operators
    assert list(plots.all())[-1] == "roofline"
