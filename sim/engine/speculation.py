"""Speculative decoding as vLLM's V1 scheduler runs it (0.32): drafts are attached, verified and rolled back.

After every step in which a request samples, k draft tokens are attached to it. Its next step computes the newest token
and the drafts; the model accepts a leading part of them and adds one token of its own. Rejected drafts are no longer
computed, and the blocks taken for them stay.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle
from operator import mul
from typing import Literal, get_args

from sim.engine.protocol import Plan, Verified
from sim.engine.request import Request

Method = Literal["draft-model", "ngram", "mtp"]
METHODS: tuple[Method, ...] = get_args(Method)
Draws = Callable[[Request], Iterator[int]]
"""For each verification of a request in turn, how many drafts the model would accept if there were enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings:
    """Who drafts, how many tokens, and how often they are right."""

    method: Method
    tokens: int
    """Drafts attached to a request after it samples: k."""
    acceptance: tuple[float, ...]
    """Chance that the draft at each position is accepted, given that all before it were."""
    seed: int = 0

    @property
    def lookahead_tokens(self) -> int:
        """KV slots past a step's tokens: a model that drafts writes its own keys and values there, look-up does not."""
        return 0 if self.method == "ngram" else self.tokens

    @property
    def extra_input_tokens(self) -> int:
        """Batch slots of a request beyond its tokens: a draft model is fed the sampled token beside the step's own."""
        return 1 if self.method == "draft-model" else 0

    @property
    def least_budget_tokens(self) -> int:
        """A smaller budget of a step would never admit a padded request."""
        return 1 + self.tokens + self.extra_input_tokens

    @property
    def drops_last_hit_block(self) -> bool:
        """MTP needs the hidden state of the last cached token, so the last block of a prefix hit is computed anew."""
        return self.method == "mtp"


def expected_tokens(acceptance: Sequence[float]) -> float:
    """Mean tokens of a verification: 1 + a1 + a1 a2 + ... (Leviathan et al., arXiv 2211.17192, for equal chances)."""
    reached: Iterator[float] = accumulate(acceptance, mul)
    return 1.0 + sum(reached)


def seeded_draws(acceptance: Sequence[float], seed: int) -> Draws:
    """A random stream per request, so that its i-th verification accepts the same whatever is scheduled around it.

    At least j drafts are accepted with the product of the first j chances: one number per verification decides.
    """
    thresholds = [1.0 - reached for reached in accumulate(acceptance, mul)]

    def draws(request: Request) -> Iterator[int]:
        uniform = random.Random(f"{seed}:{request.request_id}").random
        while True:
            yield bisect_right(thresholds, uniform())

    return draws


def pattern_draws(pattern: Sequence[int]) -> Draws:
    """The i-th verification of a request accepts ``pattern[i mod len]`` drafts, as in recorded traces."""
    return lambda _: cycle(pattern)


class Speculation:
    """The drafts of one engine's requests."""

    def __init__(self, settings: SpeculationSettings, draws: Draws | None = None) -> None:
        self.tokens = settings.tokens
        self._draws = draws or seeded_draws(settings.acceptance, settings.seed)

    def first_tokens(self, tokens: int, hit_tokens: int, already_running: list[tuple[Request, int]]) -> int:
        """Tokens of an admission: one that needs a single token is padded with dummy drafts.

        So the batch stays uniform, unless there is no batch yet (nothing runs and nothing was cached), or a running
        request is still in its prompt, which shows in its having no drafts.
        """
        if tokens != 1 or not (already_running or hit_tokens):
            return tokens
        in_prompt = any(not request.draft_tokens for request, _ in already_running)
        return tokens if in_prompt else tokens + self.tokens

    def apply(self, plan: Plan) -> tuple[list[Request], list[int], Verified]:
        """Every request that sampled gets the drafts its model accepts and one token; returns them with how many."""
        emitted: list[Request] = []
        counts: list[int] = []
        verifications = drafted = accepted_drafts = 0
        for request in plan.sampled:
            if request.ended:
                continue
            drafts, padding = plan.drafts.get(request, (0, False))
            accepted = 0
            if drafts and not padding:
                accepted = min(self._next(request), drafts)
                verifications += 1
                drafted += drafts
                accepted_drafts += accepted
            request.computed_tokens -= drafts - accepted
            tokens = min(1 + accepted, request.final_tokens - request.known_tokens)
            request.known_tokens += tokens
            request.draft_tokens = self.tokens
            emitted.append(request)
            counts.append(tokens)
        return emitted, counts, Verified(verifications, drafted, accepted_drafts)

    def _next(self, request: Request) -> int:
        if request.acceptances is None:
            request.acceptances = self._draws(request)
        return next(request.acceptances)
