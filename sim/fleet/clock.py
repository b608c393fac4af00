"""SimPy's environment with events at exact times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush

import simpy

NORMAL = 1
"""SimPy's own priority of events; lower ones go first."""
AFTER_ARRIVALS = 2
"""Of a replica's moment: what arrives at the same instant goes before it."""


class Instant(simpy.Event):
    """An event that needs nobody to trigger it."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None


class Clock(simpy.Environment):
    """SimPy knows delays, and now + (then - now) may miss ``then`` by the last bit: here an event has its very time.

    The order of events is SimPy's: by time, then priority, then who was scheduled first.
    """

    def at(self, time_s: float, priority: int = NORMAL) -> simpy.Event:
        """An event that happens at ``time_s`` (or now, if that has passed)."""
        event = Instant(self)
        heappush(self._queue, (max(time_s, self._now), priority, next(self._eid), event))  # type: ignore[misc]
        return event

    def call_at(self, time_s: float, action: Callable[[], None], priority: int = NORMAL) -> None:
        """Do something at ``time_s``."""
        event = self.at(time_s, priority)
        assert event.callbacks is not None, "it has not happened yet"
        event.callbacks.append(lambda _: action())
