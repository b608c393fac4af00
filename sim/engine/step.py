"""What is decided so far in one schedule() call."""

from __future__ import annotations

from sim.engine.request import Request


class Step:
    """Who computes what, who was admitted and who was preempted, as in ``Plan``."""

    __slots__ = ("admitted", "budget", "preempted", "scheduled", "threshold")

    def __init__(self, budget: int = 0, threshold: int = 0) -> None:
        self.budget = budget
        """Tokens the step may still take, where the engine counts them."""
        self.threshold = threshold
        """Most tokens of one request, where the engine has such a limit."""
        self.scheduled: list[tuple[Request, int]] = []
        self.admitted: list[tuple[Request, int, bool]] = []
        self.preempted: list[Request] = []

    def take(self, request: Request, tokens: int) -> None:
        """The step computes the request's next ``tokens``."""
        self.scheduled.append((request, tokens))
        self.budget -= tokens
