"""When requests arrive, as a scenario says it: one spec per process."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.scenario.protocol_specs import Protocol
from sim.scenario.quantities import REAL, WHOLE, Flag, PerSecond, PositiveSeconds, Seconds
from sim.scenario.spec import Concurrency, Spec, Tokens
from sim.scenario.varying_specs import Varying


class Poisson(Spec):
    """Independent arrivals: exponential gaps of mean 1 / ``rate``."""

    process: Literal["poisson"]
    rate: PerSecond
    """Requests per second, on average."""
    max_concurrency: Concurrency | None = None


class Gamma(Spec):
    """Gamma gaps: ``cv`` is their coefficient of variation, ``burstiness`` = 1 / cv^2; exactly one of the two."""

    process: Literal["gamma"]
    rate: PerSecond
    """Requests per second, on average."""
    cv: Annotated[float, Field(gt=0), REAL] | None = None
    burstiness: Annotated[float, Field(gt=0), REAL] | None = None
    max_concurrency: Concurrency | None = None


class Constant(Spec):
    """One arrival every 1 / ``rate``."""

    process: Literal["constant"]
    rate: PerSecond
    """Requests per second."""
    max_concurrency: Concurrency | None = None


class Burst(Spec):
    """All requests at once, at time 0."""

    process: Literal["burst"]
    max_concurrency: Concurrency | None = None


class Closed(Spec):
    """``concurrency`` clients; each sends its next request, or begins its next session, when its last one ends."""

    process: Literal["closed"]
    concurrency: Concurrency
    """Clients, and so requests (or sessions) in flight."""
    of: Literal["sessions", "requests"] = "sessions"
    """With ``traffic.sessions``, what is counted: whole sessions, with the time their users think; or requests alone,
    so that while users think others begin."""


TraceFormat = Literal[
    "auto",
    "azure",
    "burstgpt",
    "mooncake",
    "mooncake-delta",
    "agentic-mooncake",
    "llmservingsim",
    "weka",
    "ragpulse",
    "tracelab",
    "applied-compute",
    "dynamo",
    "servegen",
    "table",
]


class Trace(Spec):
    """Recorded arrivals and lengths.

    What is changed, in this order: ``spread``, the window from ``start`` to ``end``, ``sample``, ``replicate``,
    ``rate``, ``time_scale``; lengths are scaled last.
    """

    process: Literal["trace"]
    path: str
    """The file, seen from the scenario's folder."""
    format: TraceFormat = "auto"
    """auto tells by the columns. ``sim/traffic/formats`` has a file for each, which says where its traces are found."""
    time_scale: Annotated[float, Field(gt=0), REAL] = 1.0
    """Multiplies every gap between arrivals (0.5: twice the rate), not the delays within sessions."""
    start: Seconds = 0.0
    """Requests (or sessions that begin) before this second of the trace are left out; it is time 0 of the run."""
    end: PositiveSeconds | None = None
    """Those from this second of the trace on are left out."""
    sample: Annotated[float, Field(gt=0, le=1), REAL] = 1.0
    """Share of requests, or of whole sessions, that are kept, each by a draw of its own."""
    replicate: Annotated[int, Field(gt=0, le=10_000), WHOLE] = 1
    """Each request (or session) is sent so many times, evenly over the gap to the next one: the rate is that much
    higher and its course the same. Copies share prompts among themselves as the originals do, but not across copies."""
    prompt_scale: Annotated[float, Field(gt=0, le=1e6), REAL] = 1.0
    """Multiplies prompt lengths, and within them what is shared."""
    output_scale: Annotated[float, Field(gt=0, le=1e6), REAL] = 1.0
    """Multiplies output lengths."""
    spread: Flag = False
    """Times that were recorded in whole seconds fall anywhere within their second, in the order of the file."""
    rate: PerSecond | None = None
    """Requests (or sessions) arrive as a Poisson process of this rate, whatever times were recorded."""
    concurrency: Concurrency | None = None
    """So many sessions are under way, whatever times were recorded: the next begins when one ends."""
    block_tokens: Tokens | None = None
    """Tokens per hash id, where the trace does not say it and the format's own size is another."""
    lenient: Flag = False
    """Lines that cannot be read are skipped and counted; else the first one is an error."""
    max_concurrency: Concurrency | None = None


class ByClass(Spec):
    """Each of ``traffic.classes`` has arrivals of its own: what goes without saying where they have."""

    process: Literal["classes"] = "classes"


Arrivals = Annotated[
    Poisson | Gamma | Constant | Burst | Closed | Trace | ByClass | Varying | Protocol, Field(discriminator="process")
]
