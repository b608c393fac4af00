"""What is decided so far in one call of SGLang's scheduler."""

from __future__ import annotations

from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.worklist import step_work
from sim.work import PrefillChunk


class Step:
    """A prefill batch, a decode batch, or with ``mixed_chunk`` both in one step."""

    __slots__ = ("admitted", "decodes", "preempted", "prefills")

    def __init__(self) -> None:
        self.prefills: list[tuple[Request, int]] = []
        """Requests and the tokens they prefill."""
        self.decodes: list[Request] = []
        self.admitted: list[tuple[Request, int, bool]] = []
        """Requests, the prefix they found cached, and whether they had been retracted."""
        self.preempted: list[Request] = []

    @property
    def requests(self) -> list[Request]:
        """In the order of the batch."""
        return [request for request, _ in self.prefills] + self.decodes

    def commit(self, chunked: Request | None, windows: tuple[int, ...]) -> Plan:
        """Count the step's tokens as computed before it runs. All requests sample but the one that is cut."""
        chunks: list[PrefillChunk] = []
        for request, tokens in self.prefills:
            chunks.append(PrefillChunk(tokens, request.computed_tokens))
            request.computed_tokens += tokens
        for request in self.decodes:
            request.computed_tokens += 1
        contexts = [request.computed_tokens for request in self.decodes]
        scheduled = self.prefills + [(request, 1) for request in self.decodes]
        sampled = [request for request in self.requests if request is not chunked]
        work = step_work(chunks, contexts, windows, len(sampled))
        return Plan(scheduled, self.admitted, self.preempted, sampled, work)
