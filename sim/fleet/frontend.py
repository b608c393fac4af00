"""The API server of one replica: what lies between a client's send and the scheduler."""

from __future__ import annotations

import simpy

from sim.engine.request import Request
from sim.fleet.replica import Replica
from sim.results.requests import RequestLog


class FrontEnd:
    """Takes in one request per ``serial_s``, and hands it to the engine ``latency_s`` later (HTTP, tokenisation)."""

    def __init__(
        self, env: simpy.Environment, replica: Replica, log: RequestLog, *, latency_s: float, serial_s: float
    ) -> None:
        self._env = env
        self._replica = replica
        self._log = log
        self._latency_s = latency_s
        self._serial_s = serial_s
        self._free_s = 0.0

    def submit(self, request: Request, sent_s: float) -> None:
        """A request arrives from the network at ``sent_s`` (now)."""
        self._free_s = max(self._free_s, sent_s) + self._serial_s
        received_s = self._free_s + self._latency_s
        delay_s = received_s - self._env.now
        if delay_s <= 0:
            self._hand_over(request, received_s)
            return
        arrival = self._env.timeout(delay_s)
        arrival.callbacks.append(lambda _: self._hand_over(request, received_s))

    def _hand_over(self, request: Request, received_s: float) -> None:
        self._log.received_s[request.order] = received_s
        self._replica.receive(request)
