"""One replica: an engine, a cost model and a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from sim.engine.protocol import Engine, Plan
from sim.engine.request import Request
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog
from sim.work import CostModel, StepTime, StepWork

NO_TIME = StepTime(0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a step in which everything was preempted and nothing computed."""

InFlight = tuple[Plan | list[Request] | None, float, float, int, int, int, float, float, float, float]
"""A step handed to the device: its plan, from when to when it occupies the replica, its prefill tokens, decode
sequences and tokens attended to, and its compute, memory, communication and launch seconds.

In place of a plan, a replica that looks ahead has the requests whose whole prompts the step computes beside the decodes
of the steady batch, or None where there is nothing else.
"""


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
        self._cost = cost
        self._recorder = recorder
        self._requests = requests
        self._on_finish = on_finish
        self._inbox: deque[tuple[float, Request]] = deque()
        self._given_up: list[Request] = []
        """Requests in the engine whose clients are gone, until the next moment."""
        self.on_the_way: set[Request] = set()
        """Requests sent here that the network or the front end still has."""
        self._in_flight: deque[InFlight] = deque()
        self._completes = False
        """The next moment completes the oldest step."""
        self._device_free_s = 0.0

    @property
    def outstanding(self) -> int:
        """Requests sent here and not ended, as of the last moment it was advanced to."""
        return self.engine.unfinished + len(self._inbox) + len(self.on_the_way)

    @property
    def waiting_to_arrive(self) -> int:
        """Requests sent here that it has not lived to see."""
        return len(self._inbox)

    def cached_tokens(self, request: Request) -> int:
        """Of a prompt, in the engine's prefix cache, as of the last moment it was advanced to."""
        return self.engine.cached_tokens(request)

    def receive(self, request: Request, received_s: float) -> None:
        """A request reaches the scheduler at ``received_s``, not before any other; the next plan made then sees it."""
        self._inbox.append((received_s, request))
        if self.next_s == inf:
            self.next_s = received_s

    def cancel(self, request: Request, now_s: float) -> None:
        """A client gives up: the engine drops its request at the next moment, before it completes or plans a step.

        What has not reached the scheduler by ``now_s`` never does.
        """
        for index, (received_s, waiting) in enumerate(self._inbox):
            if waiting is request:
                if received_s > now_s:
                    del self._inbox[index]
                    return
                break
        self._given_up.append(request)
        if self.next_s == inf:
            self.next_s = now_s

    def advance(self, to_s: float) -> None:
        """Live through all moments before ``to_s``; no request may arrive before it any more."""
        while self.next_s < to_s:
            self.moment(lambda: to_s)

    def moment(self, horizon: Callable[[], float]) -> None:  # noqa: ARG002 - for replicas that look ahead
        """Live through the next moment, and maybe through later ones that change nothing for anybody else.

        ``horizon``: asked once what ended is told, when the next request may arrive at the earliest.
        """
        now_s = self.next_s
        if self._given_up or (self._inbox and self._inbox[0][0] <= now_s):
            self._take_in(now_s)
        if self._completes:
            self._complete(self._in_flight.popleft())
        self._plan(now_s)

    def close(self) -> None:
        """The run is over."""
        self._recorder.close()

    def _take_in(self, now_s: float) -> None:
        inbox, received_s = self._inbox, self._requests.received_s
        while inbox and inbox[0][0] <= now_s:
            time_s, request = inbox.popleft()
            received_s[request.order] = time_s
            self.engine.add(request)
        for request in self._given_up:
            self.engine.abort(request)
            self._recorder.given_up(request)
        self._given_up.clear()

    def _plan(self, now_s: float) -> None:
        """Plan a step and hand it to the device."""
        self._hand_over(self.engine.schedule(), now_s)

    def _hand_over(self, plan: Plan, now_s: float) -> None:
        ready_s = None
        if not plan.empty or plan.preempted:
            self._recorder.scheduled(plan, now_s)
            ready_s = self._launch(plan, plan.work, now_s)
        self._set_next(now_s, ready_s)

    def _launch(self, plan: Plan | list[Request], work: StepWork, now_s: float) -> float:
        """Returns when the host is ready for more."""
        chunks, sequences = work.chunks, work.decode_sequences
        time = self._cost.step_time(work) if chunks or sequences else NO_TIME
        planned_s = max(now_s, self._device_free_s)
        ready_s = now_s + time.host_s
        self._device_free_s = end_s = max(ready_s, self._device_free_s) + time.device_s
        attended = work.decode_context_tokens + sum(map(sum, chunks))
        self._in_flight.append((plan, planned_s, end_s, work.prefill_tokens, sequences, attended, *time[1:]))
        return ready_s

    def _set_next(self, now_s: float, ready_s: float | None) -> None:
        """When is the next moment, and does it complete a step? ``ready_s``: of the step launched now, if any."""
        in_flight = self._in_flight
        if ready_s is not None and len(in_flight) < self.engine.steps_in_flight:
            self._completes = False
            self.next_s = ready_s
        elif in_flight:
            self._completes = True
            self.next_s = max(in_flight[0][2], now_s if ready_s is None else ready_s)
        else:
            self._completes = False
            self.next_s = self._inbox[0][0] if self._inbox else inf

    def _complete(self, step: InFlight) -> None:
        plan = step[0]
        assert isinstance(plan, Plan), "only replicas that look ahead leave plans out"
        self._apply(plan, step)

    def _apply(self, plan: Plan, step: InFlight) -> None:
        engine = self.engine
        outcome = engine.complete(plan)
        counts = (engine.running_count, engine.waiting_count, engine.kv_blocks_used)
        self._recorder.completed(plan, outcome, step[1:], counts)
        for request in outcome.finished:
            self._on_finish(request)
