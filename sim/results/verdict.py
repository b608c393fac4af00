"""Can the fleet carry the load? A queue that still grows at the end makes percentiles depend on the run's length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PILE_UP = 0.01
"""Share of arrivals that stay behind, over the second half of a run, from which the run counts as overloaded."""
FEWEST_WAITING = 8.0
"""Below this many requests more in the queue nothing can be said."""


class Verdict(NamedTuple):
    """``stable`` or ``overloaded``, and the figures behind it."""

    state: str
    reason: str


def waiting_at(times_s: np.ndarray, received_s: np.ndarray, scheduled_s: np.ndarray) -> np.ndarray:
    """Requests in the fleet's queues at each time; NaN in ``scheduled_s`` never left it."""
    received = np.sort(received_s[~np.isnan(received_s)])
    scheduled = np.sort(scheduled_s[~np.isnan(scheduled_s)])
    return np.searchsorted(received, times_s, side="right") - np.searchsorted(scheduled, times_s, side="right")


def judge(received_s: np.ndarray, scheduled_s: np.ndarray, *, open_loop: bool) -> Verdict:
    """Compares the mean queue in the second and the last quarter of the arrivals.

    ``received_s``: when each request reached the engine, less what it waited for a client: a limit on concurrency moves
    the queue to the clients, it does not end it.
    """
    if not open_loop:
        return Verdict("stable", "closed loop: clients wait for their answers, so the queue cannot grow without bound")
    times_s = np.sort(received_s[~np.isnan(received_s)])
    if len(times_s) < 8 or times_s[0] == times_s[-1]:
        return Verdict("stable", "too few arrivals over time to see a trend")
    waiting = waiting_at(times_s, received_s, scheduled_s)
    _, second, third, last = (float(part.mean()) for part in np.array_split(waiting, 4))
    growth = (last - second) / (len(times_s) / 2)
    if last - second > FEWEST_WAITING and growth > PILE_UP and last > third > second:
        return Verdict(
            "overloaded",
            f"the queue grew from {second:.0f} to {last:.0f} requests over the second half of the arrivals "
            f"({growth:.1%} of them stay behind): latencies depend on how long the run is",
        )
    return Verdict(
        "stable", f"mean queue {second:.1f} requests in the second quarter of arrivals, {last:.1f} in the last"
    )
