"""SGLang's estimate of how much of what they may generate yet running requests will really generate."""

from __future__ import annotations

from sim.engine.request import Request
from sim.engine.sglang.waiting import max_new_tokens

INITIAL = 0.7
LEAST_OF_INITIAL = 0.14
DECAY_STEPS = 600


class NewTokenRatio:
    """Starts high, falls with every decode step that needs no retraction, and is set anew by one that does (0.5.23)."""

    steps_ahead = 20
    """Tokens per remaining request that a retraction looks ahead."""

    def __init__(self, conservativeness: float) -> None:
        self.initial = min(INITIAL * conservativeness, 1.0)
        self.least = LEAST_OF_INITIAL * self.initial
        self.current = self.initial

    def decay(self, steps: int = 1) -> None:
        """Decode steps fit."""
        for _ in range(steps):
            self.current = max(self.current - (self.initial - self.least) / DECAY_STEPS, self.least)
            if self.current == self.least:
                return

    def reset(self) -> None:
        """The engine is idle."""
        self.current = self.initial

    def after_retraction(self, remaining: list[Request]) -> None:
        """What the remaining have generated, and a little more, of all they may."""
        generated = sum(request.emitted_tokens + self.steps_ahead for request in remaining)
        self.current = min(1.0, generated / (sum(max_new_tokens(request) for request in remaining) + 1))
