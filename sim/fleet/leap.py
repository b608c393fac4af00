"""Many decode steps at once: the sums of a loop over steps, by numpy in the same order and so to the same last bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.work import DecodeTime

WORTH_IT = 48
"""Steps from which arrays are faster than a loop."""
AT_MOST = 8192
"""Steps of one leap, whose arrays thus stay small."""


class Leap(NamedTuple):
    """Successive steps: when each was planned, began to occupy the replica and ended, and what it did."""

    moments_s: np.ndarray
    began_s: np.ndarray
    ends_s: np.ndarray
    context_tokens: np.ndarray
    compute_s: np.ndarray
    memory_s: np.ndarray


def leap(
    now_s: float,
    free_s: float,
    stop_s: float,
    time: DecodeTime,
    sequences: int,
    context_tokens: int,
    most: int,
    *,
    overlapped: bool,
) -> Leap | None:
    """Up to ``most`` steps that are planned before ``stop_s``, the first of them now; None if they are too few.

    ``free_s``: when the device will be free. ``overlapped``: a step is planned while the one before it runs; then None
    too if the device would ever wait for the host.
    """
    first = time.at(context_tokens)
    if most < WORTH_IT or now_s + WORTH_IT * first.device_s > stop_s:
        return None
    most = int(min(most, AT_MOST, (stop_s - now_s) / max(first.device_s, 1e-9) + 2))
    attended = context_tokens + sequences * np.arange(most)
    compute_s = time.compute_s + time.compute_s_per_token * attended
    memory_s = time.memory_s + time.memory_s_per_token * attended
    device_s = compute_s + memory_s + time.communication_s + time.launch_s
    if overlapped:
        if now_s + time.host_s > free_s or time.host_s > device_s[0]:
            return None
        ends_s = np.add.accumulate(np.concatenate(([free_s], device_s)))
        began_s, ends_s = ends_s[:-1], ends_s[1:]
        moments_s = np.concatenate(([now_s], began_s[:-1]))
    else:
        sums = np.empty(2 * most + 1)
        sums[0], sums[1::2], sums[2::2] = now_s, time.host_s, device_s
        sums = np.add.accumulate(sums)
        began_s = moments_s = sums[:-1:2]
        ends_s = sums[2::2]
    steps = 1 + int(np.searchsorted(moments_s[1:], stop_s, side="left"))
    if steps < WORTH_IT:
        return None
    return Leap(*(column[:steps] for column in (moments_s, began_s, ends_s, attended, compute_s, memory_s)))
