"""Sessions: requests that follow one another. A reader or a generator makes them, the fleet's clients live them.

A session is a graph of turns. A turn is sent when all turns it waits for have come so far, each ``delay_s`` later, and
not before its own earliest time. Chains (a chat), fan-out and join (an agent and its sub-agents) are the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from sim.engine.request import Piece

Trigger = Literal["dispatch", "completion"]
"""What of the turn before is waited for: that it was sent, or that its answer is complete."""


class Wait(NamedTuple):
    """A turn waits for an earlier one of its session, and then ``delay_s`` (a tool's run, a user's thinking)."""

    turn: int
    """Index into ``Session.turns``; smaller than the waiting turn's own."""
    trigger: Trigger
    delay_s: float


class Turn(NamedTuple):
    """One request of a session.

    Its prompt is ``new_tokens`` alone, or, with ``extends``, the prompt of that turn + the answer it really got +
    ``new_tokens``. ``pieces`` say what the new tokens share with other prompts; None: nothing.
    """

    new_tokens: int
    output_tokens: int
    max_output_tokens: int
    extends: int | None = None
    """Index of the turn whose prompt and answer this prompt begins with."""
    pieces: tuple[Piece, ...] | None = None
    """Of the new tokens, summing to ``new_tokens``."""
    waits: tuple[Wait, ...] = ()
    """Empty: sent at the session's start + ``not_before_s``."""
    not_before_s: float = 0.0
    """Earliest send, counted from the session's start."""
    priority: int = 0


class Session(NamedTuple):
    """Turns in an order in which each comes after those it waits for and extends."""

    time_s: float
    """When it starts, in seconds of the run."""
    session_id: int
    turns: tuple[Turn, ...]
    class_index: int = 0
    """Which of the scenario's traffic classes it belongs to."""

    def capped(self, max_output_tokens: int) -> Session:
        """The same with answers that are cut there."""
        turns = (
            turn._replace(output_tokens=min(turn.output_tokens, max_output_tokens), max_output_tokens=max_output_tokens)
            for turn in self.turns
        )
        return self._replace(turns=tuple(turns))


def planned_prompts(session: Session) -> Iterator[tuple[Piece, ...]]:
    """What each turn's prompt is made of, if every answer is as long as planned."""
    prompts: list[tuple[Piece, ...]] = []
    for index, turn in enumerate(session.turns):
        name = f"{session.session_id}:{index}"
        own = ((f"p:{name}", turn.new_tokens),) if turn.pieces is None else turn.pieces
        if turn.extends is not None:
            answer = (f"o:{session.session_id}:{turn.extends}", session.turns[turn.extends].output_tokens)
            own = (*prompts[turn.extends], answer, *own)
        prompts.append(own)
        yield own


def planned_tokens(session: Session) -> Iterator[tuple[int, int]]:
    """Prompt and output of each turn, if every answer is as long as planned."""
    prompts: list[int] = []
    for turn in session.turns:
        before = 0
        if turn.extends is not None:
            before = prompts[turn.extends] + session.turns[turn.extends].output_tokens
        prompts.append(before + turn.new_tokens)
        yield prompts[-1], turn.output_tokens
