"""What is decided so far in one call of SGLang's scheduler."""

from __future__ import annotations

from sim.engine.protocol import Plan
from sim.engine.request import Request
from sim.engine.step import Step
from sim.engine.worklist import step_work
from sim.work import PrefillChunk


class BatchStep(Step):
    """A prefill batch, a decode batch, or with ``mixed_chunk`` both in one step.

    What a request computes follows from the batch it is in: the one token that a retracted request lacks is a prefill.
    """

    __slots__ = ("decodes", "prefills")

    def __init__(self) -> None:
        super().__init__()
        self.prefills: list[tuple[Request, int]] = []
        """Requests and the tokens they prefill."""
        self.decodes: list[Request] = []

    @property
    def requests(self) -> list[Request]:
        """In the order of the batch."""
        return [request for request, _ in self.prefills] + self.decodes

    def commit(self, chunked: Request | None, windows: tuple[int, ...]) -> Plan:
        """Count the step's tokens as computed before it runs. All requests sample but the one that is cut."""
        chunks = [PrefillChunk(tokens, request.computed_tokens) for request, tokens in self.prefills]
        self.scheduled = self.prefills + [(request, 1) for request in self.decodes]
        for request, tokens in self.scheduled:
            request.computed_tokens += tokens
        contexts = [request.computed_tokens for request in self.decodes]
        sampled = [request for request in self.requests if request is not chunked]
        work = step_work(chunks, contexts, windows, len(sampled))
        return Plan(self.scheduled, self.admitted, self.preempted, sampled, work)
