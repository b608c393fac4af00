"""What the fleet asks of every engine: take a request, plan a step, apply a step's result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from sim.engine.request import Request
from sim.engine.steady import SteadyBatch
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
    steady: int = 0
    """Requests beyond ``scheduled`` and ``sampled`` that decode in this step as in those before it, not named one by
    one."""
    number: int = 0
    """Counts an engine's plans that are not empty, where it has a use for that."""
    drafts: dict[Request, tuple[int, bool]] = field(default_factory=dict)
    """Draft tokens among those scheduled, in scheduled order, and whether they only pad (they are all rejected)."""

    @property
    def empty(self) -> bool:
        return not self.scheduled and not self.steady


class Prompts(NamedTuple):
    """A step that computes the whole prompts of ``requests`` beside the decodes of the steady batch."""

    requests: list[Request]
    admitted: list[tuple[Request, int, bool]]
    """As in ``Plan``."""
    work: StepWork


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
    steady: int = 0
    """Requests beyond ``emitted`` that sampled too, as in the step before."""
    tokens: Sequence[int] = ()
    """With speculation, how many tokens each of ``emitted`` got; empty: one each."""
    verified: Verified = NOTHING_VERIFIED

    @property
    def output_tokens(self) -> int:
        """Tokens that reached clients."""
        return sum(self.tokens) if self.tokens else len(self.emitted) + self.steady


class Engine(Protocol):
    """A replica without a clock.

    The caller alternates ``schedule`` and ``complete``; up to ``steps_in_flight`` plans may be scheduled before the
    oldest is completed (1: synchronous, 2: asynchronous scheduling). Plans complete in the order they were made.
    """

    steps_in_flight: int

    @property
    def prefix_queries(self) -> int:
        """Known tokens of first admissions with prefix caching on."""
        ...

    @property
    def prefix_hits(self) -> int:
        """Those of them that were cached. A resumed request's own blocks count in neither."""
        ...

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

    def cached_tokens(self, request: Request) -> int:
        """Of a request that has not arrived, the tokens it would find cached if it were admitted now."""
        ...

    def longest_request_tokens(self) -> int | None:
        """Prompt + output tokens of the largest request that can ever run to its end; None: no limit."""
        ...


@runtime_checkable
class Foresight(Engine, Protocol):
    """An engine that knows when its next steps only go on decoding, and takes them without naming each request."""

    steady: SteadyBatch
    blocks_due: list[int]
    """KV blocks that a step takes, by its number modulo the tokens of a block."""

    def settle(self) -> None:
        """Bring every request's own counts up to date."""
        ...

    def last_known_step(self) -> int:
        """The last of the next steps that decode the steady batch and do nothing else, unless a request arrives.

        Not above the last scheduled one if there is none, or if nobody can tell.
        """
        ...

    def decoded(self, scheduled: int, completed: int, blocks: int) -> None:
        """So many of these steps were scheduled, which took ``blocks``, and the oldest in flight completed."""
        ...

    def next_step(self) -> Plan | Prompts:
        """``schedule``, without naming who decodes where the step computes whole prompts and no chunks."""
        ...

    def complete_steady(self) -> tuple[list[Request], list[Request]] | None:
        """Complete the oldest step in flight, made by ``decoded`` or as ``Prompts``: first tokens, and what ended.

        None, with nothing done, if its requests had to be named meanwhile: ``complete`` takes its ``steady_plan``.
        """
        ...

    def steady_plan(self) -> Plan:
        """The plan of the oldest step in flight, where it was made by ``decoded`` or as ``Prompts``."""
        ...
