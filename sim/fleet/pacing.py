"""When replicas live through their moments: in step with the fleet's clock, or behind it in one go."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import inf

from sim.fleet.clock import AFTER_ARRIVALS, Clock
from sim.fleet.replica import Replica

INBOX = 64
"""Requests that may wait for a lagging replica."""
SLICE_S = 10.0
"""Simulated time between two looks at whether the user interrupts."""


class InStep:
    """Somebody waits for answers: every moment is an event of the fleet's clock."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._armed: set[Replica] = set()

    def sent(self, replica: Replica, _: float) -> None:
        """A request is on its way to a replica."""
        self._arm(replica)

    def catch_up(self, replicas: Sequence[Replica], now_s: float) -> None:
        """They never lag."""

    def drain(self, replicas: Sequence[Replica], stopped: Callable[[], bool]) -> None:
        """Events are over, and with them all moments."""

    def _arm(self, replica: Replica) -> None:
        if replica in self._armed or replica.next_s == inf:
            return
        self._armed.add(replica)
        self._env.call_at(replica.next_s, lambda: self._live(replica), AFTER_ARRIVALS)

    def _live(self, replica: Replica) -> None:
        self._armed.discard(replica)
        replica.moment(self._env.peek)
        self._arm(replica)


class Lagging:
    """Nobody waits for answers: a replica is looked at now and then, and lives through many moments at once."""

    def sent(self, replica: Replica, now_s: float) -> None:
        """A request is on its way to a replica; nothing is sent before ``now_s`` any more."""
        if replica.waiting_to_arrive >= INBOX:
            replica.advance(now_s)

    def catch_up(self, replicas: Sequence[Replica], now_s: float) -> None:
        """Somebody asks how they stand."""
        for replica in replicas:
            replica.advance(now_s)

    def drain(self, replicas: Sequence[Replica], stopped: Callable[[], bool]) -> None:
        """Nothing is sent any more: the replica that is furthest behind lives on, until all are idle."""
        behind = [(replica.next_s, index) for index, replica in enumerate(replicas)]
        heapq.heapify(behind)
        while behind[0][0] < inf and not stopped():
            replica = replicas[behind[0][1]]
            replica.advance(replica.next_s + SLICE_S)
            heapq.heapreplace(behind, (replica.next_s, behind[0][1]))


Pace = InStep | Lagging
