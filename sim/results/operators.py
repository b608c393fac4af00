"""The operators of a run's typical steps, for looking at on the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.cost import Operator, RooflineCost, SpeculativeCost
from sim.models.memory import windows
from sim.work import PrefillChunk, StepWork

if TYPE_CHECKING:
    import pandas as pd

    from sim.fleet import RunRecord


def typical_operators(run: RunRecord, steps: pd.DataFrame) -> dict[str, list[Operator]]:
    """Operators of the median prefilling step (``prefill``) and of the median step that only decodes (``decode``).

    Empty where steps are not made of operators (the linear model). A prefilling step is shown as one chunk without
    cached context, and decodes as equally long; with speculation each verifies all its drafts, and the operators are
    the target's alone. Of data-parallel ranks one is shown, with an even share of the step.
    """
    cost, model, ranks = run.setup.cost, run.setup.model, run.setup.deployment.data_parallel
    drafts = 0
    if isinstance(cost, SpeculativeCost):
        cost, drafts = cost.target, run.setup.draft_tokens
    if not isinstance(cost, RooflineCost):
        return {}
    shown: dict[str, list[Operator]] = {}
    prefilling = steps[steps["prefill_tokens"] > 0]
    if len(prefilling):
        tokens = max(1, int(np.median(prefilling["prefill_tokens"]) / ranks))
        work = StepWork((PrefillChunk(tokens, 0),), 0, 0, tuple(0 for _ in windows(model)), 1)
        shown["prefill"] = cost.operators(work)
    decoding = steps[(steps["prefill_tokens"] == 0) & (steps["decode_sequences"] > 0)]
    if len(decoding):
        middle = decoding.sort_values("decode_sequences", kind="stable").iloc[len(decoding) // 2]
        each = int(middle["context_tokens"]) / int(middle["decode_sequences"])
        sequences = max(1, round(int(middle["decode_sequences"]) / ranks))
        contexts = round(each * sequences)
        inside = tuple(round(sequences * min(each, window)) for window in windows(model))
        rows = sequences * (1 + drafts)
        shown["decode"] = cost.operators(StepWork((), sequences, contexts, inside, rows, sequences * drafts))
    return shown
