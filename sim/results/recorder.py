"""What one replica's steps write: request columns, gaps, the step table and the time account."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request
from sim.results.columns import Table
from sim.results.gaps import GapLog
from sim.results.requests import COMPLETED, RequestLog
from sim.results.speculation import VerificationCount
from sim.work import Bound, StepTime

STEP_COLUMNS = {
    "replica": "int32",
    "start_s": "float64",
    "duration_s": "float64",
    "prefill_tokens": "int64",
    "decode_sequences": "int64",
    "output_tokens": "int64",
    "context_tokens": "int64",
    "running": "int64",
    "waiting": "int64",
    "kv_blocks_used": "int64",
    "preemptions": "int32",
    "bound": "string",
}


ROUNDING = 1e-9
"""Of a step's duration: less than this between device and duration is how floats add up, not host time."""


@dataclass(slots=True)
class TimeAccount:
    """Seconds of busy fleet time by what bound them; launch and exposed host time are host."""

    compute_s: float = 0.0
    memory_s: float = 0.0
    communication_s: float = 0.0
    host_s: float = 0.0

    def add(self, time: StepTime, duration_s: float) -> Bound:
        """Split one step's duration; returns the largest part."""
        exposed_s = duration_s - time.device_s
        host_s = time.launch_s + (exposed_s if exposed_s > ROUNDING * duration_s else 0.0)
        self.compute_s += time.compute_s
        self.memory_s += time.memory_s
        self.communication_s += time.communication_s
        self.host_s += host_s
        largest, bound = host_s, "host"
        for part_s, name in (
            (time.communication_s, "communication"),
            (time.compute_s, "compute"),
            (time.memory_s, "memory"),
        ):
            if part_s > largest:
                largest, bound = part_s, name
        return bound  # type: ignore[return-value]


class StepRecord(NamedTuple):
    """One step as the replica saw it: it occupied the replica from ``end_s - duration_s`` to ``end_s``."""

    end_s: float
    duration_s: float
    time: StepTime
    running: int
    waiting: int
    kv_blocks_used: int


class Streak(NamedTuple):
    """Since when a request has emitted in every step, and the replica's decode clocks then."""

    step: int
    pure_s: float
    mixed_s: float


class ReplicaRecorder:
    """Follows which requests emit in consecutive steps, so that recording costs nothing per decoded token.

    ``_pure_s`` and ``_mixed_s`` are clocks of the time spent in steps that only decode and in steps that also prefill;
    a request's share is the difference between two readings. ``request.order`` is the row of the request table.
    """

    def __init__(self, requests: RequestLog, steps: Table, replica: int) -> None:
        self.gaps = GapLog()
        self.time = TimeAccount()
        self.verified = VerificationCount()
        self.steps_taken = 0
        self.preemptions = 0
        self.peak_kv_blocks = 0
        self._requests = requests
        self._steps = steps
        self._replica = replica
        self._streaming: dict[Request, Streak] = {}
        self._paused_since_s: dict[Request, float] = {}
        """Requests that stopped emitting (preempted or starved), with the time of their last token."""
        self._pure_s = 0.0
        self._mixed_s = 0.0
        self._last_end_s = 0.0

    def scheduled(self, plan: Plan, now_s: float) -> None:
        """A plan was made: first admissions get their time, the preempted are counted."""
        requests = self._requests
        for request, cached_tokens, resumed in plan.admitted:
            if not resumed:
                requests.scheduled_s[request.order] = now_s
                requests.prefill_s[request.order] = 0.0
                requests.cached_tokens[request.order] = cached_tokens
        for request in plan.preempted:
            requests.preemptions[request.order] += 1
        self.preemptions += len(plan.preempted)

    def completed(self, plan: Plan, outcome: Outcome, step: StepRecord) -> None:
        """A step ended and its tokens reached the clients."""
        for request in plan.preempted:
            self._pause(request)
        if plan.work.chunks:
            self._charge_prefill(plan, step.duration_s)
            self._mixed_s += step.duration_s
        else:
            self._pure_s += step.duration_s
        self._emit(outcome.emitted, step.end_s)
        for request in outcome.finished:
            self._finish(request, step.end_s)
        self.verified.add(outcome.verified)
        self._write_step(plan, outcome, step)
        self._last_end_s = step.end_s
        self.steps_taken += 1

    def close(self) -> None:
        """The run is over: what still streams or waits keeps the tokens it has."""
        for request, streak in self._streaming.items():
            self._settle(request, streak)
        for request in (*self._streaming, *self._paused_since_s):
            self._requests.output_tokens[request.order] = request.emitted_tokens

    def _charge_prefill(self, plan: Plan, duration_s: float) -> None:
        requests, streaming = self._requests, self._streaming
        for request, _ in plan.scheduled:
            if request not in streaming and isnan(requests.first_token_s[request.order]):
                requests.prefill_s[request.order] += duration_s

    def _emit(self, emitted: list[Request], end_s: float) -> None:
        streaming = self._streaming
        fresh = [request for request in emitted if request not in streaming]
        if len(emitted) - len(fresh) != len(streaming):
            served = set(emitted)
            for request in [request for request in streaming if request not in served]:
                self._pause(request)
        if streaming:
            self.gaps.shared(self.steps_taken, end_s, end_s - self._last_end_s, len(streaming))
        for request in fresh:
            self._start_streak(request, end_s)

    def _start_streak(self, request: Request, end_s: float) -> None:
        requests, row = self._requests, request.order
        paused_since_s = self._paused_since_s.pop(request, None)
        if paused_since_s is None:
            requests.first_token_s[row] = end_s
        else:
            gap_s = end_s - paused_since_s
            self.gaps.single(end_s, gap_s)
            requests.decode_stall_s[row] += gap_s
            requests.itl_max_s[row] = max(requests.itl_max_s[row], gap_s)
        self._streaming[request] = Streak(self.steps_taken, self._pure_s, self._mixed_s)

    def _pause(self, request: Request) -> None:
        streak = self._streaming.pop(request, None)
        if streak is not None:
            self._settle(request, streak)
            self._paused_since_s[request] = self._last_end_s

    def _settle(self, request: Request, streak: Streak) -> None:
        requests, row = self._requests, request.order
        requests.decode_s[row] += self._pure_s - streak.pure_s
        requests.decode_interference_s[row] += self._mixed_s - streak.mixed_s
        requests.itl_max_s[row] = max(requests.itl_max_s[row], self.gaps.largest_after(streak.step))

    def _finish(self, request: Request, end_s: float) -> None:
        requests, row = self._requests, request.order
        self._settle(request, self._streaming.pop(request))
        requests.finish_s[row] = end_s
        requests.output_tokens[row] = request.emitted_tokens
        requests.status[row] = COMPLETED

    def _write_step(self, plan: Plan, outcome: Outcome, step: StepRecord) -> None:
        work = plan.work
        self.peak_kv_blocks = max(self.peak_kv_blocks, step.kv_blocks_used)
        self._steps.append_row(
            (
                self._replica,
                step.end_s - step.duration_s,
                step.duration_s,
                work.prefill_tokens,
                work.decode_sequences,
                outcome.output_tokens,
                work.decode_context_tokens + sum(chunk.tokens + chunk.context_tokens for chunk in work.chunks),
                step.running,
                step.waiting,
                step.kv_blocks_used,
                len(plan.preempted),
                self.time.add(step.time, step.duration_s),
            )
        )
