"""How long prompts and outputs are, as a scenario says it: one spec per distribution."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.scenario.protocol_specs import SglangRandom, VllmRandom
from sim.scenario.quantities import REAL
from sim.scenario.spec import MOST_TOKENS, MeanTokens, Spec, Tokens


class Fixed(Spec):
    """Always ``value``; a bare whole number says the same."""

    distribution: Literal["fixed"]
    value: Tokens


class Uniform(Spec):
    """Integers from ``low`` to ``high``, both included."""

    distribution: Literal["uniform"]
    low: Tokens
    high: Tokens


class Normal(Spec):
    """Rounded, then clipped to [low, high]."""

    distribution: Literal["normal"]
    mean: MeanTokens
    std: Annotated[float, Field(ge=0, le=MOST_TOKENS), REAL]
    low: Tokens = 1
    high: Tokens | None = None


class LogNormal(Spec):
    """``mean`` is the distribution's own mean; its width is ``sigma`` (of the logarithm) or ``p99``; exactly one."""

    distribution: Literal["lognormal"]
    mean: MeanTokens
    p99: MeanTokens | None = None
    sigma: Annotated[float, Field(ge=0, le=1e6), REAL] | None = None
    low: Tokens = 1
    high: Tokens | None = None


class Empirical(Spec):
    """Lengths drawn with replacement from a column of a CSV, JSONL or Parquet file."""

    distribution: Literal["empirical"]
    path: str
    """Seen from the scenario's folder."""
    column: str
    """Its name."""


class JointLengths(Spec):
    """Prompt and output lengths of the same requests, drawn together, with replacement, from the rows of a file.

    Rows with a length of 0 are left out and counted. ShareGPT's conversations as lengths are such a list.
    """

    path: str
    """CSV, JSONL or Parquet, seen from the scenario's folder."""
    prompt_column: str | None = None
    """Blank: whichever of the names that tables of traces have is there."""
    output_column: str | None = None
    """As ``prompt_column``."""


def _bare_length(value: Any) -> Any:
    """A bare integer is a fixed length."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"distribution": "fixed", "value": value}
    return value


Lengths = Annotated[
    Annotated[
        Fixed | Uniform | Normal | LogNormal | Empirical | VllmRandom | SglangRandom,
        Field(discriminator="distribution"),
    ],
    BeforeValidator(_bare_length),
]
