"""A step's time as a linear function of its work: for teaching, quick fits and hand-checked worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.work import DecodeTime, StepTime, StepWork


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """Seconds per step, token, sequence and context token.

    Prefill counts as bound by compute and decode by memory, as they are; there is no host. With speculation a decode's
    every token (drafts to verify included) takes ``step_s_per_sequence``, its context counts once, and a step that
    decodes takes ``draft_passes`` x ``draft_pass_s`` more.
    """

    prefill_step_s: float = 0.0
    prefill_s_per_token: float = 0.0
    step_s: float = 0.0
    step_s_per_sequence: float = 0.0
    step_s_per_context_token: float = 0.0
    draft_pass_s: float = 0.0
    draft_passes: int = 0
    stages: int = 1
    """Pipeline stages, which share a step's time evenly: parallelism does not change what a step takes."""

    def prefill_s(self, tokens: int) -> float:
        """Prompt tokens of one step."""
        return self.prefill_step_s + tokens * self.prefill_s_per_token if tokens else 0.0

    def decode_s(self, sequences: int, context_tokens: int = 0) -> float:
        """One token for each of ``sequences``, and the drafts after it."""
        if not sequences:
            return 0.0
        fixed_s = self.step_s + self.draft_passes * self.draft_pass_s
        return fixed_s + sequences * self.step_s_per_sequence + self.step_s_per_context_token * context_tokens

    def step_time(self, work: StepWork) -> StepTime:
        """Both, in one step."""
        decode_s = self.decode_s(work.decode_tokens, work.decode_context_tokens)
        return StepTime(0.0, self.prefill_s(work.prefill_tokens), decode_s, 0.0, 0.0)

    def stage_times(self, work: StepWork) -> tuple[StepTime, ...]:
        """Equal parts of ``step_time``."""
        return self._parts(self.step_time(work))

    def group_time(self, works: Sequence[StepWork]) -> StepTime:
        """Of the slowest data-parallel rank."""
        return max((self.step_time(work) for work in works), key=lambda time: time.device_s)

    def group_stage_times(self, works: Sequence[StepWork]) -> tuple[StepTime, ...]:
        """Equal parts of ``group_time``."""
        return self._parts(self.group_time(works))

    def _parts(self, time: StepTime) -> tuple[StepTime, ...]:
        return (StepTime(*(seconds / self.stages for seconds in time)),) * self.stages

    def decode_time(self, sequences: int) -> DecodeTime:
        """Linear it is, without drafts to verify; windows cost nothing of their own, so there are none to count."""
        return DecodeTime(0.0, 0.0, 0.0, self.decode_s(sequences), self.step_s_per_context_token, 0.0, 0.0)
