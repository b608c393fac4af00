"""What one prefill batch of SGLang may take: its budgets, and the tests a waiting request must pass.

Mirrors ``PrefillAdder`` (0.5.23). A request is admitted if its uncached tokens, all it may still generate and one page
fit what is available, less what running requests are expected to generate yet.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from sim.engine.cache.radix_cache import RadixCache
from sim.engine.cache.rounding import blocks_for
from sim.engine.request import Request
from sim.engine.sglang.settings import SglangSettings
from sim.engine.sglang.waiting import max_new_tokens

MOST_EXPECTED_TOKENS = 4096
"""No request is expected to generate more than this."""


class Verdict(Enum):
    """May the next request be tried, and if not, why."""

    GO_ON = auto()
    NO_MEMORY = auto()
    NO_BUDGET = auto()


class Chosen(NamedTuple):
    """A request of the batch, the tokens it prefills, and its cached prefix."""

    request: Request
    tokens: int
    prefix_tokens: int


class Admission:
    """One prefill batch in the making."""

    def __init__(
        self,
        settings: SglangSettings,
        cache: RadixCache,
        running: list[Request],
        new_token_ratio: float,
    ) -> None:
        self.chosen: list[Chosen] = []
        self.chunked: Request | None = None
        """The request that is cut in this batch."""
        self._settings = settings
        self._cache = cache
        self._running = running
        self._page = cache.page_tokens
        self._ratio = 1.0 if settings.ignore_eos else new_token_ratio
        decodes = len(running) if settings.mixed_chunk and settings.chunked_prefill else 0
        self._prefill_left = settings.max_prefill_tokens - decodes
        self._chunk_left = settings.max_batched_tokens - decodes if settings.chunked_prefill else None
        self._reserved_now = decodes
        """Tokens that this step will take from the pool."""
        self._reserved: float = decodes + self._ratio * sum(_tokens_to_come(request) for request in running)
        """Those, and what it and all who run are expected to take later."""
        self._releases: list[tuple[float, int]] | None = None

    @property
    def tokens_left(self) -> float:
        """Available and not reserved."""
        return self._cache.available_tokens - self._reserved

    @property
    def chunk_left(self) -> int | None:
        """Tokens of the chunk budget that are left; None: prompts are not cut."""
        return self._chunk_left

    def expected_tokens(self, request: Request) -> float:
        """What a running request is expected to generate yet."""
        return _tokens_to_come(request) * self._ratio

    def most_expected(self, request: Request) -> int:
        """What is reserved for a request that joins, all of whose prompt is prefilled."""
        return min(max_new_tokens(request), MOST_EXPECTED_TOKENS)

    def give_back(self, request: Request) -> None:
        """A running request is preempted: nothing is expected of it."""
        self._reserved -= self.expected_tokens(request)

    @property
    def verdict(self) -> Verdict:
        """What the budgets allow."""
        if self.tokens_left <= 0 or self._cache.available_tokens <= self._reserved_now:
            return Verdict.NO_MEMORY
        if self._prefill_left <= 0 or (self._chunk_left is not None and self._chunk_left <= 0):
            return Verdict.NO_BUDGET
        return Verdict.GO_ON

    def continue_chunked(self, request: Request, most_tokens: int | None) -> None:
        """The request that was cut in the last batch goes first, with all that the budget gives it.

        SGLang fails if even its chunk does not fit the pool (decodes of mixed steps can use it up); here the chunk is
        as long as what is free, and waits if that is nothing.
        """
        assert self._chunk_left is not None, "a request was cut without chunked prefill"
        budget = min(self._chunk_left, int(self.tokens_left))
        budget = budget if budget > 0 else self._chunk_left
        if most_tokens is not None:
            budget = min(budget, most_tokens)
        left = request.known_tokens - request.computed_tokens
        room = self._cache.available_tokens + -request.computed_tokens % self._page
        tokens = min(left, budget, room)
        if tokens <= 0:
            self.chunked = request
            return
        self.chosen.append(Chosen(request, tokens, 0))
        if tokens < left:
            self.chunked = request
        self._reserve(tokens, 0 if tokens < left else self.most_expected(request))

    def add(self, request: Request) -> Verdict:
        """Try a waiting request; if it joins the batch its cached prefix is locked."""
        prefix = self._cache.hold(request)
        tokens = self._tokens(request, request.known_tokens - prefix)
        if isinstance(tokens, Verdict):
            self._cache.release(request)
            return tokens
        cut = tokens < request.known_tokens - prefix
        if cut:
            self.chunked = request
        self.chosen.append(Chosen(request, tokens, prefix))
        self._reserve(tokens, 0 if cut else self.most_expected(request))
        return self.verdict

    def _tokens(self, request: Request, uncached: int) -> int | Verdict:
        """How many of its uncached tokens it would prefill in this batch, or why it may not."""
        if not self._fits(request, uncached):
            return Verdict.NO_MEMORY
        paged = self._whole_pages(uncached)
        if self._chunk_left is None:
            # The first request of a batch may exceed max_prefill_tokens, or it could never run.
            return Verdict.NO_BUDGET if self.chosen and paged >= self._prefill_left else uncached
        if paged <= self._chunk_left:
            return uncached
        if self.chunked is not None:
            return Verdict.NO_BUDGET
        tokens = self._chunk_left // self._page * self._page
        return tokens if tokens > 0 else Verdict.NO_BUDGET

    def _fits(self, request: Request, uncached: int) -> bool:
        if self._settings.ignore_eos and not self._cache.caching:
            return self._fits_by_releases(request, uncached)
        return uncached + _tokens_to_come(request) + self._page < self.tokens_left

    def _fits_by_releases(self, request: Request, uncached: int) -> bool:
        """With known lengths and no cache: play through who ends when, and what is free until then."""
        paged = self._whole_pages(uncached) + self._page
        if paged > self.tokens_left:
            return False
        if self._releases is None:
            present = [*self._running, *(chosen.request for chosen in self.chosen)]
            self._releases = [_release(one) for one in present if _release(one)[0] > 0]
        if _release(request)[0] > 0:
            self._releases.append(_release(request))
        self._releases.sort(key=lambda release: release[0])
        free = self._cache.available_tokens - self._reserved_now - paged
        for ended, (tokens_left, tokens_held) in enumerate(self._releases):
            going = len(self._releases) - ended
            if free - tokens_left * going <= going:
                return False
            free += tokens_held
        return True

    def _reserve(self, tokens: int, to_come: int) -> None:
        paged = self._whole_pages(tokens)
        self._reserved_now += paged + self._page
        self._reserved += paged + self._page + to_come
        self._prefill_left -= paged
        if self._chunk_left is not None:
            self._chunk_left -= paged

    def _whole_pages(self, tokens: int) -> int:
        return blocks_for(tokens, self._page) * self._page


def _tokens_to_come(request: Request) -> int:
    """What a request may generate yet, as far as anybody looks ahead."""
    return min(request.most_tokens - request.known_tokens, MOST_EXPECTED_TOKENS)


def _release(request: Request) -> tuple[float, int]:
    """When a request ends, in tokens from now, and the tokens that it holds so far."""
    return request.most_tokens - request.known_tokens, request.known_tokens
