"""The API server of one replica: what lies between a client's send and the scheduler."""

from __future__ import annotations

from sim.engine.request import Request
from sim.fleet.replica import Replica


class FrontEnd:
    """Takes in one request per ``serial_s``, and hands it to the engine ``latency_s`` later (HTTP, tokenisation)."""

    def __init__(self, replica: Replica, *, latency_s: float, serial_s: float) -> None:
        self._replica = replica
        self._latency_s = latency_s
        self._serial_s = serial_s
        self._free_s = 0.0

    def accept(self, now_s: float) -> float:
        """A request arrives from the network, not before any other; returns when it is ready for the engine."""
        self._free_s = free_s = (max(self._free_s, now_s)) + self._serial_s
        return free_s + self._latency_s

    def submit(self, request: Request, sent_s: float) -> None:
        """A request arrives from the network at ``sent_s``, and the engine is to have it."""
        self._replica.receive(request, self.accept(sent_s))

    def cancel(self, request: Request, now_s: float) -> None:
        """Its client gives up a request that was submitted here."""
        self._replica.cancel(request, now_s)
