"""The load, as a scenario says it: who sends what and when."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.scenario.arrival_specs import Arrivals, ByClass
from sim.scenario.length_specs import JointLengths, Lengths
from sim.scenario.quantities import REAL, WHOLE, PositiveSeconds
from sim.scenario.session_specs import Cancellation, Client, SessionsSpec
from sim.scenario.slo_spec import SloSpec
from sim.scenario.spec import MOST_REQUESTS, Spec, Tokens


class UniformPopularity(Spec):
    """Every group as often as the next."""

    distribution: Literal["uniform"]


class ZipfPopularity(Spec):
    """The k-th group is drawn in proportion to 1 / k^alpha."""

    distribution: Literal["zipf"]
    alpha: Annotated[float, Field(gt=0, le=20), REAL] = 1.0


def _bare_name(value: Any) -> Any:
    """A bare name is a distribution without parameters."""
    return {"distribution": value} if isinstance(value, str) else value


Popularity = Annotated[
    Annotated[UniformPopularity | ZipfPopularity, Field(discriminator="distribution")], BeforeValidator(_bare_name)
]


class SharedPrefix(Spec):
    """The first ``tokens`` of every prompt come from one of ``groups`` shared prompts; they add to prompt_tokens."""

    tokens: Tokens
    """Length of a shared prompt."""
    groups: Annotated[int, Field(gt=0, le=1_000_000), WHOLE] = 1
    """How many different ones."""
    popularity: Popularity = UniformPopularity(distribution="uniform")
    """How often each group is drawn: ``uniform``, or ``{distribution: zipf, alpha: 1}``."""
    prompts_per_group: Annotated[int, Field(gt=0, le=1_000_000), WHOLE] | None = None
    """Whole prompts, of which so many different ones exist per group, repeat; blank: what follows is never the same."""


class ClassSpec(Spec):
    """One of several classes of requests; what it does not say is as ``traffic`` says for all."""

    share: Annotated[float, Field(gt=0, le=1e9), REAL] | None = None
    """Weight in the common arrivals; exactly one of ``share`` and ``arrivals``, or neither where the common arrivals
    are a trace with a column of classes."""
    arrivals: Arrivals | None = None
    """Its own process."""
    prompt_tokens: Lengths | None = None
    """Lengths of its prompts."""
    output_tokens: Lengths | None = None
    """Lengths of its outputs."""
    max_output_tokens: Tokens | None = None
    """The cap an engine knows of."""
    shared_prefix: SharedPrefix | None = None
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31), WHOLE] | None = None
    """Of all its requests (lower is more important); needs ``policy: priority``."""
    slo: SloSpec | None = None
    """What its requests should meet, in place of the scenario's ``slo``."""


ClassName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]


class TrafficSpec(Spec):
    """Who sends what and when. ``requests`` or ``duration`` ends the load; a trace may end it itself."""

    arrivals: Arrivals = ByClass()
    """Blank only where each class has its own."""
    requests: Annotated[int, Field(gt=0, le=MOST_REQUESTS), WHOLE] | None = None
    """How many are sent. With ``duration`` too, whichever is reached first ends the load."""
    duration: PositiveSeconds | None = None
    """For how long requests are sent."""
    prompt_tokens: Lengths | None = None
    """Lengths of prompts. In a trace they replace the trace's own."""
    output_tokens: Lengths | None = None
    """Lengths of outputs. In a trace they replace the trace's own."""
    lengths: JointLengths | None = None
    """Both lengths at once, such as ``{path: sharegpt.csv}``, in place of the two above."""
    max_output_tokens: Tokens | None = None
    """The cap an engine knows of; longer outputs are cut there. Blank: the actual length."""
    shared_prefix: SharedPrefix | None = None
    sessions: SessionsSpec | None = None
    """Requests that follow one another; blank: each stands alone."""
    client: Client | None = None
    cancellation: Cancellation | None = None
    classes: Annotated[dict[ClassName, ClassSpec], Field(max_length=100)] | None = None
    """Classes of requests by name, with shares of the arrivals or arrivals of their own."""
    priorities: dict[Annotated[int, WHOLE], Annotated[float, Field(gt=0), REAL]] | None = None
    """Weights of priority values (lower is more important); needs ``policy: priority``."""
