"""One replica: an engine, a cost model and a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

import simpy

from sim.engine.protocol import Engine, Plan
from sim.engine.request import Request
from sim.results.recorder import ReplicaRecorder, StepRecord
from sim.work import CostModel, StepTime

NO_TIME = StepTime(0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a step in which everything was preempted and nothing computed."""


class InFlight(NamedTuple):
    """A step handed to the device."""

    plan: Plan
    time: StepTime
    planned_s: float
    end_s: float


class Replica:
    """Runs the engine's loop: plan a step, wait as long as it takes, apply its result.

    Host and device are two resources. With one step in flight (synchronous) a step takes host + device. With two
    (asynchronous) the host plans the next step while the device runs: the period is max(host, device), and an arrival
    waits for the running step and the queued one.
    """

    def __init__(
        self,
        env: simpy.Environment,
        engine: Engine,
        cost: CostModel,
        recorder: ReplicaRecorder,
        on_finish: Callable[[Request], None],
    ) -> None:
        self.engine = engine
        self.recorder = recorder
        self._env = env
        self._cost = cost
        self._on_finish = on_finish
        self._idle: simpy.Event | None = None
        self._device_free_s = 0.0
        env.process(self._run())

    @property
    def outstanding(self) -> int:
        """Requests waiting or running here."""
        return self.engine.unfinished

    def receive(self, request: Request) -> None:
        """A request reaches the scheduler; it is seen when the next step is planned."""
        self.engine.add(request)
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def _run(self) -> Generator[simpy.Event, None, None]:
        env, engine = self._env, self.engine
        in_flight: deque[InFlight] = deque()
        now_s = env.now
        while True:
            plan = engine.schedule()
            host_free_s = now_s
            if not plan.empty or plan.preempted:
                in_flight.append(self._launch(plan, now_s))
                host_free_s += in_flight[-1].time.host_s
                if len(in_flight) < engine.steps_in_flight:
                    yield from self._wait_until(host_free_s)
                    now_s = host_free_s
                    continue
            if not in_flight:
                self._idle = env.event()
                yield self._idle
                now_s = env.now
                continue
            oldest = in_flight.popleft()
            now_s = max(oldest.end_s, host_free_s)
            yield from self._wait_until(now_s)
            self._complete(oldest)

    def _wait_until(self, time_s: float) -> Generator[simpy.Event, None, None]:
        """Times are kept here as absolute ones: SimPy's now + delay may be off in the last bit."""
        yield self._env.timeout(max(0.0, time_s - self._env.now))

    def _launch(self, plan: Plan, now_s: float) -> InFlight:
        time = NO_TIME if plan.empty else self._cost.step_time(plan.work)
        self.recorder.scheduled(plan, now_s)
        planned_s = max(now_s, self._device_free_s)
        self._device_free_s = max(now_s + time.host_s, self._device_free_s) + time.device_s
        return InFlight(plan, time, planned_s, self._device_free_s)

    def _complete(self, step: InFlight) -> None:
        engine = self.engine
        outcome = engine.complete(step.plan)
        record = StepRecord(
            step.end_s,
            step.end_s - step.planned_s,
            step.time,
            engine.running_count,
            engine.waiting_count,
            engine.kv_blocks_used,
        )
        self.recorder.completed(step.plan, outcome, record)
        for request in outcome.finished:
            self._on_finish(request)
