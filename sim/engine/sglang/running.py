"""SGLang's running batch: who decodes, and who gives up its pages when they run out."""

from __future__ import annotations

from sim.engine.cache.radix_cache import RadixCache
from sim.engine.request import Request, Status
from sim.engine.sglang.admission import Admission
from sim.engine.sglang.ratio import NewTokenRatio
from sim.engine.sglang.settings import SglangSettings
from sim.engine.sglang.step import BatchStep
from sim.engine.sglang.waiting import Waiting

RUNNING = Status.RUNNING


class Running:
    """Requests that decode. They join one step after their prefill, and leave when they are seen to have ended."""

    def __init__(self, settings: SglangSettings, cache: RadixCache, waiting: Waiting) -> None:
        self.requests: list[Request] = []
        self.full = False
        """Nobody is admitted (batch_is_full): set by a refusal, cleared when somebody leaves."""
        self.ratio = NewTokenRatio(settings.schedule_conservativeness)
        self._settings = settings
        self._cache = cache
        self._waiting = waiting

    def merge(self, prefilled: list[Request], chunked: Request | None) -> None:
        """The last prefill batch joins, without the request that is cut; who has ended is dropped."""
        joining = [request for request in prefilled if request.status is RUNNING and request is not chunked]
        if len(joining) < len(prefilled) or (joining and not self.requests):
            # SGLang keeps the flag with the batch; an empty batch is replaced by the joining one, and its flag lost.
            self.full = False
        self.requests = self.requests + joining
        self._keep([request for request in self.requests if request.status is RUNNING])

    def mix(self, step: BatchStep, ending: set[Request]) -> None:
        """All decode along with a prefill batch if they fit; otherwise they wait for the next decode step."""
        self._keep([request for request in self.requests if request not in ending])
        if self.requests and self._fits(self.requests):
            self._take_tokens(step)
            self.requests = []

    def decode(self, step: BatchStep, ending: set[Request]) -> None:
        """One token for everyone, after retractions if their pages do not fit.

        ``ending``: those that the step in flight will end. They decode no more, and what they hold is free when it is
        completed: where pages are short, wait for that instead of retracting.
        """
        self._keep([request for request in self.requests if request not in ending])
        if not self.requests:
            return
        if self._fits(self.requests):
            self.ratio.decay()
        elif ending:
            return
        else:
            self._retract(step)
        self._take_tokens(step)

    def preempt_for(self, request: Request, step: BatchStep, admission: Admission) -> bool:
        """Take the places of the least important requests, the latest first, if that gives enough memory."""
        missing = request.known_tokens + admission.most_expected(request) - admission.tokens_left
        victims: list[Request] = []
        for victim in sorted(self.requests, key=lambda r: (r.priority, r.order), reverse=True):
            if victim.priority - request.priority <= self._settings.priority_preemption_threshold:
                break
            victims.append(victim)
            missing -= admission.expected_tokens(victim)
            if missing <= 0:
                break
        if not victims or missing > 0:
            return False
        for victim in victims:
            admission.give_back(victim)
            self.requests.remove(victim)
            self._give_up(step, victim, remaining=len(self.requests))
        return True

    def _keep(self, requests: list[Request]) -> None:
        if len(requests) < len(self.requests):
            self.full = False
        self.requests = requests

    def _fits(self, requests: list[Request]) -> bool:
        """Are there pages for the next token of each, once what may be evicted is."""
        pages = self._cache.pages_for_next_token(requests)
        self._cache.make_free(pages * self._settings.block_tokens)
        return pages <= self._cache.free_pages

    def _take_tokens(self, step: BatchStep) -> None:
        """Pages for one token of each; SGLang evicts as if each began a page."""
        self._cache.make_free(len(self.requests) * self._settings.block_tokens)
        self._cache.take_next_token(self.requests)
        step.decodes = self.requests

    def _retract(self, step: BatchStep) -> None:
        """Those with the fewest output tokens leave, of equals the one with the longest prompt, until the rest fits.

        At least one leaves and one stays. If even that one does not fit SGLang aborts it; here it is retracted as well:
        admission has made sure that it fits alone, so a prompt in chunks holds the pages, and goes on now.
        """
        kept = sorted(self.requests, key=lambda r: (r.emitted_tokens, -r.prompt_tokens), reverse=True)
        while len(kept) > 1:
            self._give_up(step, kept.pop(), remaining=len(kept))
            if self._fits(kept):
                break
        if not self._fits(kept):
            self._give_up(step, kept.pop(), remaining=0)
        self._keep(kept)
        self.ratio.after_retraction(kept)

    def _give_up(self, step: BatchStep, victim: Request, *, remaining: int) -> None:
        """A request loses its pages, uncached, and waits again; some are made free at once for those that remain."""
        self._cache.release(victim)
        self._cache.make_free(self.ratio.steps_ahead * remaining)
        victim.computed_tokens = 0
        victim.status = Status.PREEMPTED
        self._waiting.add(victim)
        step.preempted.append(victim)
