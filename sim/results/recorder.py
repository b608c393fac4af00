"""What one replica's steps write: request columns, gaps and the step table."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np

from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.results.gaps import GapLog
from sim.results.requests import COMPLETED, RequestLog
from sim.results.speculation import VerificationCount
from sim.results.steps import StepLog
from sim.results.streams import StreamLog

Step = tuple[Any, float, float, int, int, int, float, float, float, float]
"""What was planned, and ``StepRow``'s fields from planned_s to context_tokens and from compute_s to launch_s."""

Streak = tuple[int, float, float]
"""The step since which a request has emitted in every one, and the replica's clocks then: pure_s and mixed_s."""


class ReplicaRecorder:
    """Follows which requests emit in consecutive steps, so that recording costs nothing per decoded token.

    ``pure_s`` and ``mixed_s`` are clocks of the time spent in steps that only decode and in steps that also prefill; a
    request's share is the difference between two readings. ``request.order`` is the row of the request table.
    """

    def __init__(self, requests: RequestLog, steps: StepLog, replica: int, streams: StreamLog | None = None) -> None:
        self.gaps = GapLog()
        self.append_row, self._append_rows = steps.rows.append, steps.append_rows
        self.replica = replica
        self.verified = VerificationCount()
        self.steps_taken = 0
        self.preemptions = 0
        self.pure_s = 0.0
        self.last_end_s = 0.0
        self._flush_if_full = steps.flush_if_full
        self._mixed_s = 0.0
        self._requests = requests
        self._streams = streams
        """Where it is noted which steps gave a request a chunk, if anybody asks for that."""
        self.streaming: dict[Request, Streak] = {}
        """Requests that emitted in the step completed last."""
        self._paused_since_s: dict[Request, float] = {}
        """Requests that stopped emitting (preempted or starved), with the time of their last token."""

    def scheduled(self, plan: Plan, now_s: float) -> None:
        """A plan was made: first admissions get their time, the preempted are counted."""
        self.admitted(plan.admitted, now_s)
        for request in plan.preempted:
            self._requests.preemptions[request.order] += 1
        self.preemptions += len(plan.preempted)

    def admitted(self, admitted: list[tuple[Request, int, bool]], now_s: float) -> None:
        """Requests left the queue, with the tokens that were cached; resumed ones had done so before."""
        requests = self._requests
        for request, cached_tokens, resumed in admitted:
            if not resumed:
                row = request.order
                requests.scheduled_s[row] = now_s
                requests.prefill_s[row] = 0.0
                requests.cached_tokens[row] = cached_tokens

    def completed(self, plan: Plan, outcome: Outcome, step: tuple[float, ...], counts: tuple[int, int, int]) -> None:
        """A step ended and its tokens reached the clients.

        ``step``: fields of ``StepRow`` from planned_s to context_tokens, and from compute_s to launch_s; ``counts``:
        those between them, without the preemptions.
        """
        planned_s, end_s = step[:2]
        for request in plan.preempted:
            self._pause(request)
        self._pause_starved(outcome)
        if plan.work.chunks:
            self._charge_prefill(plan, end_s - planned_s)
            self._mixed_s += end_s - planned_s
        else:
            self.pure_s += end_s - planned_s
        gap_s, streaming = self._emit(outcome, end_s)
        for request in outcome.finished:
            self._finish(request, end_s)
        if outcome.tokens:
            self.verified.add(outcome.verified)
            if self._streams is not None:
                for request, tokens in zip(outcome.emitted, outcome.tokens, strict=True):
                    self._streams.burst(request.order, tokens)
        row = (
            self.replica, *step[:5], *counts, len(plan.preempted), *step[5:], gap_s, streaming, outcome.output_tokens
        )  # fmt: skip
        self.append_row(row)
        self._flush_if_full()
        self.last_end_s = end_s
        self.steps_taken += 1

    def went_on(self, step: Step, prompts: list[Request], ended: list[Request], counts: tuple[int, int, int]) -> None:
        """``completed``, of a step that gave a token to all that streams, and the first one to whole prompts."""
        _, planned_s, end_s, prefill, decodes, attended, compute_s, memory_s, communication_s, launch_s = step
        duration_s, count, gap_s = end_s - planned_s, len(self.streaming), 0.0
        if prefill:
            self._mixed_s += duration_s
            requests = self._requests
            for request in prompts:
                if isnan(requests.first_token_s[request.order]):
                    requests.prefill_s[request.order] += duration_s
        else:
            self.pure_s += duration_s
        if count:
            gap_s = end_s - self.last_end_s
            if gap_s > self.gaps.peak_s:
                self.gaps.peak_s = gap_s
        for request in prompts:
            self._start_streak(request, end_s)
        for request in ended:
            self._finish(request, end_s)
        running, waiting, used = counts
        self.append_row((
            self.replica, planned_s, end_s, prefill, decodes, attended, running, waiting, used, 0,
            compute_s, memory_s, communication_s, launch_s, gap_s, count, count + len(prompts),
        ))  # fmt: skip
        self.last_end_s = end_s
        self.steps_taken += 1
        self._flush_if_full()

    def leapt(self, step: tuple[Any, ...], counts: tuple[int, int, np.ndarray]) -> None:
        """``went_on`` of many steps of nothing but decodes; fields that vary are arrays."""
        began_s, ends_s = step[:2]
        gaps_s, streaming = np.diff(ends_s, prepend=self.last_end_s), len(self.streaming)
        row = (self.replica, *step[:5], *counts, 0, *step[5:], gaps_s, streaming, streaming)
        self._append_rows(row, len(ends_s))
        pure_s = np.add.accumulate(np.concatenate(([self.pure_s], ends_s - began_s)))[-1]
        self.decoded(len(ends_s), float(ends_s[-1]), float(pure_s), float(gaps_s.max()))

    def decoded(self, steps: int, last_end_s: float, pure_s: float, largest_gap_s: float) -> None:
        """The requests that stream got a token in each of so many steps; their rows are written."""
        self.steps_taken += steps
        if largest_gap_s > self.gaps.peak_s:
            self.gaps.peak_s = largest_gap_s
        self.last_end_s = last_end_s
        self.pure_s = pure_s
        self._flush_if_full()

    def given_up(self, request: Request) -> None:
        """The engine dropped a request; it keeps the tokens that reached its client."""
        streak = self.streaming.pop(request, None)
        if streak is not None:
            self._settle(request, streak, self.steps_taken)
        self._paused_since_s.pop(request, None)
        self._requests.output_tokens[request.order] = request.emitted_tokens

    def close(self) -> None:
        """The run is over: what still streams or waits keeps the tokens it has."""
        for request, streak in self.streaming.items():
            self._settle(request, streak, self.steps_taken)
        for request in (*self.streaming, *self._paused_since_s):
            self._requests.output_tokens[request.order] = request.emitted_tokens

    def _charge_prefill(self, plan: Plan, duration_s: float) -> None:
        requests, streaming = self._requests, self.streaming
        for request, _ in plan.scheduled:
            waits = request not in streaming and isnan(requests.first_token_s[request.order])
            if waits and request.status is not Status.ABORTED:
                requests.prefill_s[request.order] += duration_s

    def _emit(self, outcome: Outcome, end_s: float) -> tuple[float, int]:
        """Start and end streaks; returns the gap of those that go on, and how many they are."""
        streaming, emitted = self.streaming, outcome.emitted
        fresh = [request for request in emitted if request not in streaming]
        count, gap_s = len(streaming), 0.0
        if count:
            gap_s = end_s - self.last_end_s
            if gap_s > self.gaps.peak_s:
                self.gaps.peak_s = gap_s
        for request in fresh:
            self._start_streak(request, end_s)
        return gap_s, count

    def _pause_starved(self, outcome: Outcome) -> None:
        """What streamed and gets no token in this step waits through it: before its time is counted."""
        streaming = self.streaming
        going_on = sum(request in streaming for request in outcome.emitted) + outcome.steady
        if going_on != len(streaming):
            served = set(outcome.emitted)
            for request in [request for request in streaming if request not in served]:
                self._pause(request)

    def _start_streak(self, request: Request, end_s: float) -> None:
        requests, row = self._requests, request.order
        paused_since_s = self._paused_since_s.pop(request, None) if self._paused_since_s else None
        if paused_since_s is None:
            requests.first_token_s[row] = end_s
        else:
            gap_s = end_s - paused_since_s
            self.gaps.single(end_s, gap_s)
            requests.decode_stall_s[row] += gap_s
            requests.itl_max_s[row] = max(requests.itl_max_s[row], gap_s)
        self.gaps.mark(self.steps_taken)
        self.streaming[request] = (self.steps_taken, self.pure_s, self._mixed_s)

    def _pause(self, request: Request) -> None:
        streak = self.streaming.pop(request, None)
        if streak is not None:
            self._settle(request, streak, self.steps_taken)
            self._paused_since_s[request] = self.last_end_s

    def _settle(self, request: Request, streak: Streak, stop: int) -> None:
        """A streak ended before step ``stop``."""
        requests, row = self._requests, request.order
        since, pure_s, mixed_s = streak
        if self._streams is not None:
            self._streams.streak(row, self.replica, since, stop)
        requests.decode_s[row] += self.pure_s - pure_s
        requests.decode_interference_s[row] += self._mixed_s - mixed_s
        largest_s = self.gaps.largest_after(since)
        if largest_s > requests.itl_max_s[row]:
            requests.itl_max_s[row] = largest_s

    def _finish(self, request: Request, end_s: float) -> None:
        requests, row = self._requests, request.order
        self._settle(request, self.streaming.pop(request), self.steps_taken + 1)
        requests.finish_s[row] = end_s
        requests.output_tokens[row] = request.emitted_tokens
        requests.status[row] = COMPLETED
