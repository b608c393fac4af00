"""What the fleet asks of every engine: take a request, plan a step, apply a step's result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sim.engine.request import Request
from sim.work import StepWork


@dataclass(slots=True)
class Plan:
    """One planned step.

    ``scheduled``: (request, tokens) in the engine's order; ``admitted``: (request, prefix-hit tokens, resumed) for
    those that left the waiting queue in this step; ``preempted`` in order.
    """

    scheduled: list[tuple[Request, int]]
    admitted: list[tuple[Request, int, bool]]
    preempted: list[Request]
    sampled: list[Request]
    """Requests that sample a token in this step, in scheduled order."""
    work: StepWork
    drafts: dict[Request, tuple[int, bool]] = field(default_factory=dict)
    """Draft tokens among those scheduled, in scheduled order, and whether they only pad (they are all rejected)."""

    @property
    def empty(self) -> bool:
        return not self.scheduled


class Verified(NamedTuple):
    """Speculation in one step: verifications, the drafts they looked at, and those they accepted.

    As vLLM counts: padding is none, and drafts beyond a request's last token count as accepted.
    """

    verifications: int
    drafted_tokens: int
    accepted_tokens: int


NOTHING_VERIFIED = Verified(0, 0, 0)


@dataclass(slots=True)
class Outcome:
    """What a completed step produced.

    ``emitted``: requests that sampled a token that the client sees, in scheduled order; ``finished``: those that ended,
    in order; a finished request is in ``emitted`` too.
    """

    emitted: list[Request]
    finished: list[Request]
    tokens: list[int] = field(default_factory=list)
    """With speculation, how many tokens each of ``emitted`` got; empty: one each."""
    verified: Verified = NOTHING_VERIFIED

    @property
    def output_tokens(self) -> int:
        """Tokens that reached clients."""
        return sum(self.tokens) if self.tokens else len(self.emitted)


class Engine(Protocol):
    """A replica without a clock.

    The caller alternates ``schedule`` and ``complete``; up to ``steps_in_flight`` plans may be scheduled before the
    oldest is completed (1: synchronous, 2: asynchronous scheduling). Plans complete in the order they were made.
    """

    steps_in_flight: int
    prefix_queries: int
    """Known tokens of first admissions with prefix caching on."""
    prefix_hits: int
    """Those of them that were cached. A resumed request's own blocks count in neither."""

    def add(self, request: Request) -> None: ...

    def schedule(self) -> Plan: ...

    def complete(self, plan: Plan) -> Outcome: ...

    def abort(self, request: Request) -> None: ...

    @property
    def unfinished(self) -> int:
        """Requests waiting or running."""
        ...

    @property
    def running_count(self) -> int: ...

    @property
    def waiting_count(self) -> int: ...

    @property
    def kv_blocks_used(self) -> int:
        """Blocks held by requests (cached but unreferenced ones are free)."""
        ...

    def longest_request_tokens(self) -> int | None:
        """Prompt + output tokens of the largest request that can ever run to its end; None: no limit."""
        ...
