"""Clients that do not wait for ever: time-outs, and users who cancel."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from sim.scenario import specs
from sim.traffic.delays import DrawDelays, build_delays
from sim.traffic.streams import generator

BLOCK_REQUESTS = 1024


class GiveUp(NamedTuple):
    """When a client gives up a request that has not ended by then."""

    after_s: float
    """From its send; infinite: never."""
    cancelled: bool
    """Its user does not want it any more; else it timed out."""


def patience(spec: specs.TrafficSpec, seed: int) -> Iterator[GiveUp] | None:
    """One entry per request, in the order they are sent, without end; None: everybody waits for ever."""
    timeout_s = inf if spec.client is None or spec.client.timeout is None else spec.client.timeout
    if spec.cancellation is None:
        return None if timeout_s == inf else _always(GiveUp(timeout_s, cancelled=False))
    return _drawn(spec.cancellation.probability, build_delays(spec.cancellation.after), timeout_s, seed)


def _always(given: GiveUp) -> Iterator[GiveUp]:
    while True:
        yield given


def _drawn(share: float, delays: DrawDelays, timeout_s: float, seed: int) -> Iterator[GiveUp]:
    who, when = generator(seed, "cancellation"), generator(seed, "cancellation_delay")
    while True:
        chosen = (who.random(BLOCK_REQUESTS) < share).tolist()
        for cancels, after_s in zip(chosen, delays(when, BLOCK_REQUESTS).tolist(), strict=True):
            cancelled = cancels and after_s < timeout_s
            yield GiveUp(after_s if cancelled else timeout_s, cancelled)
