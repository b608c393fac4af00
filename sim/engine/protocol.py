"""What the fleet asks of every engine: take a request, plan a step, apply a step's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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

    @property
    def empty(self) -> bool:
        return not self.scheduled


@dataclass(slots=True)
class Outcome:
    """What a completed step produced.

    ``emitted``: requests that sampled a token that the client sees, in scheduled order (without speculation one each);
    ``finished``: those that ended, in order; a finished request is in ``emitted`` too.
    """

    emitted: list[Request]
    finished: list[Request]


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
