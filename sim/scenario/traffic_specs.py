"""The load, as a scenario says it: who sends what and when."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.scenario.arrival_specs import Arrivals
from sim.scenario.length_specs import Lengths
from sim.scenario.quantities import REAL, WHOLE, PositiveSeconds
from sim.scenario.spec import MOST_REQUESTS, Spec, Tokens


class SharedPrefix(Spec):
    """The first ``tokens`` of every prompt come from one of ``groups`` shared prompts; they add to prompt_tokens."""

    tokens: Tokens
    """Length of a shared prompt."""
    groups: Annotated[int, Field(gt=0, le=1_000_000), WHOLE] = 1
    """How many different ones."""
    prompts_per_group: Annotated[int, Field(gt=0, le=1_000_000), WHOLE] | None = None
    """Whole prompts that each group has: groups x prompts_per_group prompts are sent again and again, in one shuffled
    order. Blank: no prompt comes twice."""


class TrafficSpec(Spec):
    """Who sends what and when. ``requests`` or ``duration`` ends the load; a trace may end it itself."""

    arrivals: Arrivals
    requests: Annotated[int, Field(gt=0, le=MOST_REQUESTS), WHOLE] | None = None
    """How many are sent. With ``duration`` too, whichever is reached first ends the load."""
    duration: PositiveSeconds | None = None
    """For how long requests are sent."""
    prompt_tokens: Lengths | None = None
    """Lengths of prompts. In a trace they replace the trace's own."""
    output_tokens: Lengths | None = None
    """Lengths of outputs. In a trace they replace the trace's own."""
    max_output_tokens: Tokens | None = None
    """The cap an engine knows of; longer outputs are cut there. Blank: the actual length."""
    shared_prefix: SharedPrefix | None = None
    priorities: dict[Annotated[int, WHOLE], Annotated[float, Field(gt=0), REAL]] | None = None
    """Weights of priority values (lower is more important); needs ``policy: priority``."""
