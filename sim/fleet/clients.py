"""The client's side: sends each request when its time has come and a client is free."""

from __future__ import annotations

from collections.abc import Callable, Generator

import simpy

from sim.fleet.clock import Clock
from sim.traffic import Arrival, Traffic

Send = Callable[[Arrival, float, float, int | None], None]
"""Takes a request, when it is sent, how long after it was due, and its session if it is not one of its own."""


class Clients:
    """Sends the traffic's requests in order.

    With a limit on concurrency (a closed loop, or ``max_concurrency``) a request waits for a free client, and counts
    as sent only then: that wait is no part of its TTFT.
    """

    def __init__(self, env: Clock, traffic: Traffic, send: Send) -> None:
        self._env = env
        self._traffic = traffic
        self._send = send
        self._limit = traffic.limit
        self._open = 0
        self._slot: simpy.Event | None = None
        self.sending = env.process(self._run_by_ticks() if traffic.skips_full_moments else self._run())

    def ended(self, request_id: int, output_tokens: int, *, completed: bool) -> None:  # noqa: ARG002 - for sessions
        """A request ended, in whatever way: its client is free."""
        self._open -= 1
        if self._slot is not None:
            self._slot.succeed()
            self._slot = None

    def _run_by_ticks(self) -> Generator[simpy.Event, None, None]:
        """A request leaves at the next moment of the process at which a client is free; the others are skipped."""
        env, moments_s, stops_at_s = self._env, self._traffic.moments_s(), self._traffic.stops_at_s
        for arrival in self._traffic:
            while True:
                yield env.at(next(moments_s))
                if stops_at_s is not None and env.now >= stops_at_s:
                    return
                if self._limit is None or self._open < self._limit:
                    break
            self._open += 1
            self._send(arrival, env.now, 0.0, None)

    def _run(self) -> Generator[simpy.Event, None, None]:
        env, stops_at_s, closed = self._env, self._traffic.stops_at_s, self._traffic.closed_concurrency is not None
        for arrival in self._traffic:
            if arrival.time_s > env.now:
                yield env.at(arrival.time_s)
            while self._limit is not None and self._open >= self._limit:
                self._slot = env.event()
                yield self._slot
            sent_s = env.now
            if stops_at_s is not None and sent_s >= stops_at_s:
                break
            self._open += 1
            due_s = sent_s if closed else arrival.time_s
            self._send(arrival, sent_s, max(0.0, sent_s - due_s), None)
        if stops_at_s is not None and env.now < stops_at_s:
            yield env.at(stops_at_s)
