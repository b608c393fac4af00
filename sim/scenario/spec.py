"""What every spec is made of: a frozen base, and bounded counts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sim.scenario.quantities import REAL, WHOLE

MOST_TOKENS = 10_000_000
MOST_REQUESTS = 100_000_000
Positive = Annotated[int, Field(gt=0), WHOLE]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS), WHOLE]
Concurrency = Annotated[int, Field(gt=0, le=1_000_000), WHOLE]
MeanTokens = Annotated[float, Field(gt=0), REAL]


class Spec(BaseModel):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
