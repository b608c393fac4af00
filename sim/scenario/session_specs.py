"""Requests that follow one another, and clients that do not wait for ever, as a scenario says it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.scenario.delay_specs import Delays
from sim.scenario.length_specs import Lengths
from sim.scenario.quantities import WHOLE, Flag, Fraction, PositiveSeconds, Seconds
from sim.scenario.spec import Spec


class ToolCalls(Spec):
    """Answers that call a tool: the next turn brings its result, ``delay`` later, instead of what a user thought of."""

    probability: Fraction = 1.0
    """Share of the turns after the first that bring a tool's result."""
    delay: Delays
    """For how long the tool runs, from the end of the answer."""
    tokens: Lengths | None = None
    """Length of a result; blank: as ``traffic.prompt_tokens``."""


class FanOut(Spec):
    """Sub-agents: ``branches`` chains of ``turns`` requests, each of which begins with all that was said so far.

    They start when turn ``after`` is answered, in sessions that go on after it, and follow ``tool_calls.delay`` alone.
    """

    after: Annotated[int, Field(gt=0, le=1_000_000), WHOLE]
    """Turn of the session, counted from 1."""
    branches: Lengths
    """How many sub-agents."""
    turns: Lengths = Field(default=1, validate_default=True)
    """Requests of each."""
    join: Flag = True
    """Whether the session's next turn waits for all of them; it is then sent at once."""


class SessionsSpec(Spec):
    """Arrivals are of sessions. A turn's prompt is all that was said before it, the answer included, and new tokens.

    ``traffic.prompt_tokens`` are the new tokens of a turn. ``traffic.shared_prefix`` and ``traffic.priorities`` are
    drawn once per session. ``traffic.requests`` counts requests, and cuts the last session; after ``traffic.duration``
    no turn is sent. ``max_concurrency`` bounds requests in flight: turns of sessions under way go before first turns.
    """

    turns: Lengths
    """Requests of a session, without those of sub-agents."""
    first_prompt_tokens: Lengths | None = None
    """New tokens of the first turn; blank: as ``traffic.prompt_tokens``."""
    think_time: Delays = Field(default=0, validate_default=True)
    """From the end of an answer to the next turn of its user."""
    tool_calls: ToolCalls | None = None
    fan_out: FanOut | None = None


class Client(Spec):
    """What lies between the sender and the engine, and what the sender does on its side.

    TTFT = network (out) + tokenise + the engine's own front end + queue + prefill, with its token's selection +
    detokenise + network (back).
    """

    timeout: PositiveSeconds | None = None
    """It gives up a request that has not ended so long after it was sent; the engine then drops it."""
    network: Delays | None = None
    """One way; drawn anew for the way back."""
    tokenise: Delays | None = None
    """Of a prompt, beside what the engine's own front end takes."""
    tokenise_per_token: Seconds = 0.0
    """More of it per prompt token."""
    detokenise: Delays | None = None
    """From a token's selection to its text; the same for every chunk of an answer."""
    stream_interval: Annotated[int, Field(gt=0, le=1_000_000), WHOLE] = 1
    """The server sends the first token alone and then groups of so many (its --stream-interval): ITL has the gaps
    between groups."""


class Cancellation(Spec):
    """Users who stop an answer, or leave before it begins."""

    probability: Fraction
    """Share of requests that their users would cancel; those that end sooner are not."""
    after: Delays
    """From the send to the cancellation."""
