"""When requests arrive, as a scenario says it: one spec per process."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.scenario.protocol_specs import Protocol
from sim.scenario.quantities import REAL, PerSecond
from sim.scenario.spec import Concurrency, Spec
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


class Trace(Spec):
    """Recorded arrivals and lengths. ``time_scale`` multiplies every gap (0.5: twice the rate)."""

    process: Literal["trace"]
    path: str
    """CSV, JSONL or Parquet file, seen from the scenario's folder."""
    format: Literal["auto", "azure", "mooncake", "table"] = "auto"
    """auto tells by the columns. mooncake: JSONL of timestamp (ms), input_length, output_length and hash_ids, one per
    512 tokens of the prompt; prompts that begin with the same ids share these tokens, for prefix caching."""
    time_scale: Annotated[float, Field(gt=0), REAL] = 1.0
    max_concurrency: Concurrency | None = None


class ByClass(Spec):
    """Each of ``traffic.classes`` has arrivals of its own: what goes without saying where they have."""

    process: Literal["classes"] = "classes"


Arrivals = Annotated[
    Poisson | Gamma | Constant | Burst | Closed | Trace | ByClass | Varying | Protocol, Field(discriminator="process")
]
