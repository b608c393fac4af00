"""The time of a step with speculative decoding: the target verifies, then drafts for the next step are made.

As vLLM's proposers do it: the first pass of the draft runs over all tokens of the step (its own KV of prompts, and of
drafts just verified, comes from there), each further pass over one token of every request. Drafts follow every step,
also one of prompts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.cost.roofline import RooflineCost
from sim.models.memory import windows
from sim.work import CostModel, StepTime, StepWork

LOOKUP_S = 0.1e-3
"""Host time of a step's n-gram look-ups: an order of magnitude, not measured."""


class SpeculativeCost:
    """``target``'s step, ``passes`` of ``draft`` (None: drafts cost the device nothing), and ``host_s`` of drafting."""

    def __init__(self, target: CostModel, draft: RooflineCost | None, passes: int, host_s: float = 0.0) -> None:
        self.target = target
        self._draft = draft
        self._passes = passes
        self._host_s = host_s
        self._windows = () if draft is None else windows(draft.model)

    def step_time(self, work: StepWork) -> StepTime:
        """Host and device seconds of one step."""
        return self._with_drafts(self.target.step_time(work), [work])

    def stage_times(self, work: StepWork) -> tuple[StepTime, ...]:
        """Drafts are made where tokens are sampled: on the last stage."""
        *before, last = self.target.stage_times(work)
        return (*before, self._with_drafts(last, [work]))

    def group_time(self, works: Sequence[StepWork]) -> StepTime:
        """Data-parallel ranks draft together too."""
        return self._with_drafts(self.target.group_time(works), works)

    def group_stage_times(self, works: Sequence[StepWork]) -> tuple[StepTime, ...]:
        """As ``stage_times``."""
        *before, last = self.target.group_stage_times(works)
        return (*before, self._with_drafts(last, works))

    def _with_drafts(self, time: StepTime, works: Sequence[StepWork]) -> StepTime:
        parts = [(time, 1)]
        sequences = [work.decode_sequences + len(work.chunks) for work in works]
        draft = self._draft
        if draft is not None and any(sequences):
            both = list(zip(works, sequences, strict=True))
            parts.append((_drafting(draft, [self._first_pass(work, count) for work, count in both]), 1))
            if self._passes > 1:
                further = _drafting(draft, [self._further_pass(work, count) for work, count in both])
                parts.append((further, self._passes - 1))
        host, compute, memory, communication, launch = (
            sum(time[index] * count for time, count in parts) for index in range(5)
        )
        return StepTime(host + self._host_s, compute, memory, communication, launch)

    def decode_time(self, sequences: int) -> None:
        """Every step drafts, and most verify: none is a plain decode."""

    def _first_pass(self, work: StepWork, sequences: int) -> StepWork:
        """The step's own tokens; the last accepted one of each request samples the first draft."""
        inside = self._inside(work.decode_sequences, work.decode_context_tokens)
        return StepWork(
            work.chunks, work.decode_sequences, work.decode_context_tokens, inside, sequences, work.draft_tokens
        )

    def _further_pass(self, work: StepWork, sequences: int) -> StepWork:
        """One token each. Contexts grow by one per pass: all are given the length of the middle one."""
        prompts = sum(chunk.tokens + chunk.context_tokens for chunk in work.chunks)
        contexts = work.decode_context_tokens + prompts + sequences * self._passes // 2
        return StepWork((), sequences, contexts, self._inside(sequences, contexts), sequences)

    def _inside(self, sequences: int, contexts: int) -> tuple[int, ...]:
        """Tokens within the draft's windows, requests taken as equally long."""
        return tuple(round(min(contexts, sequences * window)) for window in self._windows)


def _drafting(draft: RooflineCost, works: Sequence[StepWork]) -> StepTime:
    return draft.step_time(works[0]) if len(works) == 1 else draft.group_time(works)
