"""From times that were recorded to what waited for what.

A session's requests stand in lanes (an agent, each of its sub-agents). A request waits for the answer of the latest one
of its lane that had been answered when it was sent, for the answers of sub-agents that ended since, and then as long
again as it did when it was recorded. Where the one before it in its lane was still being answered, the two overlapped:
it follows that one's dispatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.engine.request import Piece
from sim.traffic.sessions import Turn, Wait


class Call(NamedTuple):
    """One request as recorded, in seconds of its session."""

    sent_s: float
    ended_s: float
    prompt_tokens: int
    output_tokens: int
    pieces: tuple[Piece, ...] | None
    lane: int
    joins: tuple[int, ...] = ()
    """Lanes of which the last answer is waited for too."""
    pause_s: float | None = None
    """How long it was not sent although it could have been, where that was recorded."""


def turns(calls: Sequence[Call], parents: dict[int, int | None]) -> tuple[Turn, ...]:
    """Turns in order of time; ``parents``: of each lane, the lane that sent it out."""
    order = sorted(range(len(calls)), key=lambda index: calls[index].sent_s)
    made: list[Turn] = []
    lanes: dict[int, list[int]] = {}
    sorted_calls = [calls[index] for index in order]
    for place, call in enumerate(sorted_calls):
        lane: int | None = call.lane
        while lane is not None and lane not in lanes:
            lane = parents.get(lane)
        before = lanes.get(lane, []) if lane is not None else []
        joined = [lanes[each][-1] for each in call.joins if each in lanes]
        waits = _waits(call, before, joined, sorted_calls)
        due_s = 0.0 if waits else call.sent_s
        made.append(
            Turn(
                call.prompt_tokens,
                call.output_tokens,
                call.output_tokens,
                pieces=call.pieces,
                waits=waits,
                not_before_s=due_s,
            )
        )
        lanes.setdefault(call.lane, []).append(place)
    return tuple(made)


def _waits(call: Call, before: list[int], joined: list[int], calls: Sequence[Call]) -> tuple[Wait, ...]:
    answered = [place for place in before if calls[place].ended_s <= call.sent_s]
    if before and not answered and not joined:
        last = before[-1]
        return (Wait(last, "dispatch", call.sent_s - calls[last].sent_s),)
    last_of_lane = [max(answered, key=lambda place: calls[place].ended_s)] if answered else []
    awaited = sorted({*last_of_lane, *joined})
    if not awaited:
        return ()
    pause_s = call.pause_s
    if pause_s is None:
        pause_s = max(0.0, call.sent_s - max(calls[place].ended_s for place in awaited))
    return tuple(Wait(place, "completion", pause_s) for place in awaited)
