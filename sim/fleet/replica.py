"""One replica: an engine, a cost model and a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from sim.engine.protocol import Engine, Foresight, Plan
from sim.engine.request import Request
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog
from sim.work import CostModel, StepTime

NO_TIME = StepTime(0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a step in which everything was preempted and nothing computed."""


class InFlight(NamedTuple):
    """A step handed to the device."""

    plan: Plan | None
    """None: the decodes of the steady batch and nothing else."""
    planned_s: float
    end_s: float
    prefill_tokens: int
    decode_sequences: int
    context_tokens: int
    compute_s: float
    memory_s: float
    communication_s: float
    launch_s: float


class Replica:
    """Runs the engine's loop: complete a step, plan the next, as long as it takes.

    Host and device are two resources. With one step in flight (synchronous) a step takes host + device. With two
    (asynchronous) the host plans the next step while the device runs: the period is max(host, device), and an arrival
    waits for the running step and the queued one.

    It lives in moments: at each the arrivals up to it are taken in, the oldest step is completed if enough are in
    flight, and the next one is planned. Nothing but an arrival changes what its next moments bring, so it may lag
    behind the fleet's clock: whoever wants to know it advances it first.
    """

    def __init__(
        self,
        engine: Engine,
        cost: CostModel,
        recorder: ReplicaRecorder,
        requests: RequestLog,
        on_finish: Callable[[Request], None],
    ) -> None:
        self.engine = engine
        self.next_s = inf
        """Its next moment; infinite while it is idle."""
        self._foresight = engine if isinstance(engine, Foresight) else None
        self._cost = cost
        self._recorder = recorder
        self._requests = requests
        self._on_finish = on_finish
        self._inbox: deque[tuple[float, Request]] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._completes = False
        """The next moment completes the oldest step."""
        self._device_free_s = 0.0

    @property
    def outstanding(self) -> int:
        """Requests sent here and not ended, as of the last moment it was advanced to."""
        return self.engine.unfinished + len(self._inbox)

    @property
    def waiting_to_arrive(self) -> int:
        """Requests sent here that it has not lived to see."""
        return len(self._inbox)

    def receive(self, request: Request, received_s: float) -> None:
        """A request reaches the scheduler at ``received_s``, not before any other; the next plan made then sees it."""
        self._inbox.append((received_s, request))
        if self.next_s == inf:
            self.next_s = received_s

    def advance(self, to_s: float) -> None:
        """Live through all moments before ``to_s``; no arrival may come before it any more."""
        while self.next_s < to_s:
            self.moment(lambda: to_s)

    def moment(self, horizon: Callable[[], float]) -> None:
        """Live through the next moment, and through later ones that only go on decoding.

        ``horizon``: asked once what ended is told, when the next request may arrive at the earliest.
        """
        now_s = self.next_s
        if self._inbox and self._inbox[0][0] <= now_s:
            self._take_in(now_s)
        if self._completes:
            self._complete(self._in_flight.popleft())
        if self._foresight is None or not self._go_on_decoding(self._foresight, now_s, horizon):
            self._plan(now_s)

    def close(self) -> None:
        """The run is over."""
        if self._foresight is not None:
            self._foresight.settle()
        self._recorder.close()

    def _take_in(self, now_s: float) -> None:
        inbox, received_s = self._inbox, self._requests.received_s
        while inbox and inbox[0][0] <= now_s:
            time_s, request = inbox.popleft()
            received_s[request.order] = time_s
            self.engine.add(request)

    def _plan(self, now_s: float) -> None:
        """Plan a step and hand it to the device; when is the next moment?"""
        engine, in_flight = self.engine, self._in_flight
        plan = engine.schedule()
        ready_s = now_s
        if not plan.empty or plan.preempted:
            ready_s += self._launch(plan, now_s)
            if len(in_flight) < engine.steps_in_flight:
                self._completes = False
                self.next_s = ready_s
                return
        if in_flight:
            self._completes = True
            self.next_s = max(in_flight[0].end_s, ready_s)
            return
        self._completes = False
        self.next_s = self._inbox[0][0] if self._inbox else inf

    def _launch(self, plan: Plan, now_s: float) -> float:
        """Returns what the host needs for it."""
        work = plan.work
        time = NO_TIME if plan.empty else self._cost.step_time(work)
        self._recorder.scheduled(plan, now_s)
        planned_s = max(now_s, self._device_free_s)
        self._device_free_s = max(now_s + time.host_s, self._device_free_s) + time.device_s
        self._in_flight.append(
            InFlight(
                plan if plan.scheduled or plan.preempted else None,
                planned_s,
                self._device_free_s,
                work.prefill_tokens,
                work.decode_sequences,
                work.decode_context_tokens + sum([chunk.tokens + chunk.context_tokens for chunk in work.chunks]),
                *time[1:],
            )
        )
        return time.host_s

    def _complete(self, step: InFlight) -> None:
        engine = self.engine
        plan = step.plan
        if plan is None:
            assert self._foresight is not None, "only an engine with foresight leaves plans out"
            plan = self._foresight.steady_plan()
        outcome = engine.complete(plan)
        counts = (engine.running_count, engine.waiting_count, engine.kv_blocks_used)
        self._recorder.completed(plan, outcome, step[1:], counts)
        for request in outcome.finished:
            self._on_finish(request)

    def _go_on_decoding(self, engine: Foresight, now_s: float, horizon: Callable[[], float]) -> bool:
        """Plan and complete steps in which the same requests decode on and nothing else happens; False if none is.

        The arithmetic is that of ``_launch`` and ``_complete``, kept in local variables.
        """
        recorder, in_flight = self._recorder, self._in_flight
        run = engine.decode_run()
        time = None if run is None or not recorder.streaming else self._cost.decode_time(run.sequences)
        if run is None or time is None:
            return False
        to_s = horizon()
        if self._inbox and self._inbox[0][0] < to_s:
            to_s = self._inbox[0][0]
        host_s, compute_0_s, compute_1_s, memory_0_s, memory_1_s, communication_s, launch_s, windows = time
        sequences, number, blocks_due, block_tokens = run.sequences, run.number, run.blocks_due, run.block_tokens
        context_tokens, used, last = run.context_tokens, run.blocks_used, run.number + run.steps
        replica, counts, streaming = recorder.replica, (engine.running_count, engine.waiting_count), recorder.streaming
        append, last_end_s, pure_s, peak_s = recorder.steps.rows.append, recorder.last_end_s, recorder.pure_s, 0.0
        free_s, depth, completed, new = self._device_free_s, engine.steps_in_flight, 0, tuple.__new__
        while True:
            compute_s = compute_0_s + compute_1_s * context_tokens
            memory_s = memory_0_s + memory_1_s * context_tokens
            if windows:
                _, compute_s, memory_s, _, _ = time.at(context_tokens, run.window_tokens(number))
            planned_s = max(free_s, now_s)
            ready_s = now_s + host_s
            free_s = (max(free_s, ready_s)) + (compute_s + memory_s + communication_s + launch_s)
            used += blocks_due[number % block_tokens]
            parts = (compute_s, memory_s, communication_s, launch_s)
            in_flight.append(new(InFlight, (None, planned_s, free_s, 0, sequences, context_tokens, *parts)))
            number += 1
            if len(in_flight) < depth:
                self._completes, self.next_s = False, ready_s
                break
            plan, began_s, end_s, *rest = in_flight[0]
            now_s = max(ready_s, end_s)
            if number == last or now_s >= to_s or plan is not None:
                self._completes, self.next_s = True, now_s
                break
            in_flight.popleft()
            completed += 1
            gap_s = end_s - last_end_s
            if gap_s > peak_s:
                peak_s = gap_s
            pure_s += end_s - began_s
            last_end_s = end_s
            append((replica, began_s, end_s, *rest[:3], *counts, used, 0, *rest[3:], gap_s, streaming, streaming))
            context_tokens += sequences
        self._device_free_s = free_s
        engine.decoded(number - run.number, completed)
        if completed:
            recorder.decoded(completed, last_end_s, pure_s, peak_s)
        return True
