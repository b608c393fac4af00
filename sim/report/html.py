"""The report of a run as one HTML file that needs nothing else: no script, no link, figures inside."""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from sim import __version__
from sim.report.facts import (
    STATISTICS,
    Summary,
    assumptions,
    bounds,
    classes,
    engine,
    headline,
    latencies,
    lines,
    slo_met,
    verdict,
)
from sim.report.format import percent
from sim.report.plots import Plots, Run

if TYPE_CHECKING:
    from jinja2 import Environment

CAPTIONS = {
    "latency": "Share of requests that were at least this fast; dots mark p50, p90 and p99, and requests without the "
    "metric (rejected, unfinished, one-token answers for TPOT) are left out.",
    "breakdown": "Mean seconds of each part, over all requests and over those around the 99th percentile; the parts "
    "sum to the whole.",
    "bounds": "What bounded the replicas over the whole run; kernel launches and exposed host work count as host.",
    "timeline": "Means over equal stretches of time, summed over replicas; the lowest panel shares the replicas' time "
    "out by what bounds the step in progress.",
    "throughput_latency": "Each point is a stretch of the run; colour tells when.",
    "roofline": "Operators left of a ridge point are bound by memory, those right of it by compute; distance to the "
    "roof is efficiency not reached.",
}


class Picture(NamedTuple):
    """One figure with the sentence beneath it."""

    name: str
    title: str
    caption: str
    source: str
    """A data URI."""


def html(result: Run) -> str:
    """The whole report of a ``sim.Result``."""
    pictures = [picture(name, figure) for name, figure in Plots(result).all().items()]
    scenario = yaml.safe_dump(result.loaded.data, sort_keys=False, allow_unicode=True)
    return render(result.summary, scenario, str(getattr(result.loaded, "file", "") or ""), pictures)


def render(summary: Summary, scenario_yaml: str, scenario_file: str, pictures: list[Picture]) -> str:
    """The page from what it shows; every text is escaped."""
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **shown(summary),
            scenario=scenario_yaml,
            file=scenario_file,
            pictures=pictures,
            version=__version__,
            engine=engine(summary),
            seed=summary.get("seed"),
        )
    )


def shown(summary: Summary) -> dict[str, Any]:
    """What the page and the notebook's fragment both show."""
    return {
        "headline": headline(summary),
        "verdict": verdict(summary),
        "partial": bool(summary.get("partial")),
        "lines": lines(summary),
        "slo_met": slo_met(summary),
        "statistics": STATISTICS,
        "latencies": latencies(summary),
        "bounds": [(name, percent(share), 100 * share) for name, share in bounds(summary)],
        "classes": classes(summary),
        "assumed": assumptions(summary),
    }


def picture(name: str, figure: Any) -> Picture:
    """A figure as inline PNG, described by its own title."""
    from sim.report.figures.style import png

    source = "data:image/png;base64," + base64.b64encode(png(figure, dpi=130)).decode("ascii")
    return Picture(name, " ".join(figure.get_suptitle().split()), CAPTIONS.get(name, ""), source)


@cache
def environment() -> Environment:
    """Templates of this package: everything escaped, and a misspelt name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("sim.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
