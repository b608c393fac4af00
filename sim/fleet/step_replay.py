"""A live step log replayed through the loop of ``sim run``: its arrivals and its times in, every decision compared.

The requests are sent at their logged times. A step starts when the logged one did and takes what the logged one took:
the host from ``t0`` to ``t1``, the device from ``t1`` to ``t2``, and the engine's next step starts the logged gap
later. What arrives up to a step's start is seen by it, at the very instant too. All else is the simulator's: what each
step holds, the queues, the free blocks, and the request table, in which first and last tokens must fall on the logged
step ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

from sim.engine.conform import Difference
from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request
from sim.engine.schedulers import build_vllm
from sim.engine.vllm_v1 import VllmV1
from sim.fleet.clock import Clock
from sim.fleet.pacing import InStep
from sim.fleet.replica import Replica
from sim.fleet.step_log import LiveLog, LoggedArrival, LoggedStep, token_times
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog
from sim.results.steps import StepLog
from sim.work import DecodeTime, StepTime, StepWork

SAME_INSTANT_S = 5e-10
"""Half of a log's last digit. On a clock that has run for long all times come out to the bit."""


def replay_log(log: LiveLog) -> Difference | None:
    """The first field of the first step that is not as logged (steps count from 0), or None."""
    return _Replay(log).run()


class LoggedTimes:
    """A cost model that is no model: steps take what the log says, in its order."""

    def __init__(self, steps: Sequence[LoggedStep]) -> None:
        self._steps = steps
        self._taken = 0

    @property
    def next_start_s(self) -> float:
        """When the next step starts; never, after the last."""
        return self._steps[self._taken].start_s if self._taken < len(self._steps) else inf

    def step_time(self, _: StepWork) -> StepTime:
        step = self._steps[self._taken]
        return StepTime(step.scheduled_s - step.start_s, step.end_s - step.scheduled_s, 0.0, 0.0, 0.0)

    def stage_times(self, work: StepWork) -> tuple[StepTime, ...]:
        return (self.step_time(work),)

    def group_time(self, works: Sequence[StepWork]) -> StepTime:
        return self.step_time(works[0])

    def group_stage_times(self, works: Sequence[StepWork]) -> tuple[StepTime, ...]:
        return self.stage_times(works[0])

    def decode_time(self, _: int) -> DecodeTime | None:
        return None

    def take(self) -> None:
        """The next step was launched."""
        self._taken += 1


class LoggedReplica(Replica):
    """A replica that waits for the logged start of each step."""

    def __init__(self, engine: VllmV1, times: LoggedTimes, recorder: ReplicaRecorder, requests: RequestLog) -> None:
        super().__init__(engine, times, recorder, requests, lambda _: None)
        self._times = times

    def _plan(self, now_s: float) -> None:
        start_s = self._times.next_start_s
        if now_s < start_s:
            self._completes = False
            self.next_s = start_s
        else:
            super()._plan(now_s)

    def _launch(self, plan: Plan | list[Request], work: StepWork, now_s: float) -> float:
        ready_s = super()._launch(plan, work, now_s)
        self._times.take()
        return ready_s


class StepWitness(ReplicaRecorder):
    """Records as ever, and writes each step down by the log's names."""

    def __init__(self, engine: VllmV1, requests: RequestLog) -> None:
        super().__init__(requests, StepLog(), 0)
        self.seen: list[dict[str, Any]] = []
        self._engine = engine

    def scheduled(self, plan: Plan, now_s: float) -> None:
        """What the plan holds."""
        super().scheduled(plan, now_s)
        engine = self._engine
        self.seen.append(
            {
                "t0": now_s,
                "scheduled": [
                    [request.request_id, tokens, engine.computed_tokens(request) - tokens]
                    for request, tokens in engine.listed(plan)
                ],
                "preempted": [request.request_id for request in plan.preempted],
            }
        )

    def completed(self, plan: Plan, outcome: Outcome, step: tuple[float, ...], counts: tuple[int, int, int]) -> None:
        """When it ended, who ended with it, and what the step table gets."""
        super().completed(plan, outcome, step, counts)
        running, waiting, _ = counts
        self.seen[-1] |= {
            "t2": step[1],
            "finished": [request.request_id for request in outcome.finished],
            "running": running,
            "waiting": waiting,
            "free_blocks": self._engine.cache.pool.free,
        }


class _Replay:
    """One log, once."""

    def __init__(self, log: LiveLog) -> None:
        self._log = log
        self._requests = RequestLog()
        self._rows = {arrival.name: row for row, arrival in enumerate(log.arrivals)}
        self._env = Clock(min([log.steps[0].start_s, *(arrival.time_s for arrival in log.arrivals)]))
        self._pace = InStep(self._env)
        engine = build_vllm(log.rules, log.settings)
        self._witness = StepWitness(engine, self._requests)
        self._replica = LoggedReplica(engine, LoggedTimes(log.steps), self._witness, self._requests)

    def run(self) -> Difference | None:
        for row, arrival in enumerate(self._log.arrivals):
            self._requests.submit(arrival.time_s, arrival.prompt_tokens, arrival.priority)
            self._env.call_at(arrival.time_s, partial(self._send, row, arrival))
        self._env.run()
        self._replica.close()
        return next(self._differences(), None)

    def _send(self, row: int, arrival: LoggedArrival) -> None:
        name, time_s, prompt_tokens, output_tokens, priority = arrival
        request = Request(name, prompt_tokens, output_tokens, order=row, priority=priority)
        self._replica.receive(request, time_s)
        self._pace.sent(self._replica, time_s)

    def _differences(self) -> Iterator[Difference]:
        tokens = defaultdict(list)
        for number, name, column in token_times(self._log):
            tokens[number].append((name, column))
        for number, step in enumerate(self._log.steps):
            seen = self._witness.seen[number] if number < len(self._witness.seen) else {"scheduled": []}
            for field in seen:
                if not _same(field, step.fields[field], seen[field]) and not (field == "t2" and not seen["scheduled"]):
                    yield Difference(number, field, step.fields[field], seen[field])
            for name, column in tokens[number]:
                time_s = getattr(self._requests, column)[self._rows[name]] if name in self._rows else None
                if time_s is None or not _same("t2", step.end_s, time_s):
                    yield Difference(number, f"{column} of {name}", step.end_s, time_s)


def _same(field: str, recorded: Any, replayed: Any) -> bool:
    if field in ("t0", "t2"):
        return abs(float(recorded) - float(replayed)) <= SAME_INSTANT_S
    return bool(recorded == replayed)
