"""What the steps of a pipelined replica write: requests emit every few steps, each by itself."""

from __future__ import annotations

from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import COMPLETED, RequestLog
from sim.results.steps import StepLog
from sim.results.streams import StreamLog

Token = tuple[float, float, float]
"""When a request got its last token, and the replica's clocks then: pure_s and mixed_s."""


class PipelineRecorder(ReplicaRecorder):
    """Batches take turns, so a request emits in every second step or more rarely, and every gap is its own.

    Its time between two tokens is that of all steps that end in between: decode, or interference where they prefill.
    ``prefill_s`` is the time from admission to the first token, batches of others that share the pipeline included.
    """

    def __init__(self, requests: RequestLog, steps: StepLog, replica: int, streams: StreamLog | None = None) -> None:
        super().__init__(requests, steps, replica, streams)
        self._tokens: dict[Request, Token] = {}
        self._resumed: set[Request] = set()
        """Preempted and admitted again since their last token."""

    def admitted(self, admitted: list[tuple[Request, int, bool]], now_s: float) -> None:
        """Requests left the queue, with the tokens that were cached; resumed ones had done so before."""
        super().admitted(admitted, now_s)
        self._resumed.update(request for request, _, resumed in admitted if resumed and request in self._tokens)

    def completed(self, plan: Plan, outcome: Outcome, step: tuple[float, ...], counts: tuple[int, int, int]) -> None:
        """A step ended and its tokens reached the clients; arguments are those of ``ReplicaRecorder``."""
        planned_s, end_s = step[:2]
        if plan.work.chunks:
            self._mixed_s += end_s - planned_s
        else:
            self.pure_s += end_s - planned_s
        for request in outcome.emitted:
            self._token(request, end_s)
        for request in outcome.finished:
            self._finish(request, end_s)
        self.append_row((
            self.replica, *step[:5], *counts, len(plan.preempted), *step[5:], 0.0, 0, outcome.output_tokens
        ))  # fmt: skip
        self._flush_if_full()
        self.last_end_s = end_s
        self.steps_taken += 1

    def given_up(self, request: Request) -> None:
        """The engine dropped a request; it keeps the tokens that reached its client."""
        self._drop(request)
        self._requests.output_tokens[request.order] = request.emitted_tokens

    def close(self) -> None:
        """The run is over: what still decodes keeps the tokens it has."""
        for request in self._tokens:
            self._requests.output_tokens[request.order] = request.emitted_tokens

    def _token(self, request: Request, end_s: float) -> None:
        requests, row = self._requests, request.order
        last = self._tokens.get(request)
        self._tokens[request] = (end_s, self.pure_s, self._mixed_s)
        if self._streams is not None:
            self._streams.streak(row, self.replica, self.steps_taken, self.steps_taken + 1)
        if last is None:
            requests.first_token_s[row] = end_s
            requests.prefill_s[row] = end_s - requests.scheduled_s[row]
            return
        before_s, pure_s, mixed_s = last
        gap_s = end_s - before_s
        self.gaps.single(end_s, gap_s)
        requests.itl_max_s[row] = max(requests.itl_max_s[row], gap_s)
        if request in self._resumed:
            self._resumed.discard(request)
            requests.decode_stall_s[row] += gap_s
        else:
            requests.decode_s[row] += self.pure_s - pure_s
            requests.decode_interference_s[row] += self._mixed_s - mixed_s

    def _finish(self, request: Request, end_s: float) -> None:
        requests, row = self._requests, request.order
        self._drop(request)
        requests.finish_s[row] = end_s
        requests.output_tokens[row] = request.emitted_tokens
        requests.status[row] = COMPLETED

    def _drop(self, request: Request) -> None:
        self._tokens.pop(request, None)
        self._resumed.discard(request)
