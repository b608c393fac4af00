"""SGLang's scheduler, living through runs of decode steps at once."""

from __future__ import annotations

from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request, Status
from sim.engine.run_engine import RunEngine
from sim.engine.sglang.scheduler import Launched, Sglang
from sim.engine.sglang.settings import SglangSettings
from sim.engine.steady import NEVER


class FastSglang(RunEngine, Sglang):
    """Decides exactly as ``Sglang`` does, whose code takes every step that is not one of a run.

    Prefill batches make everybody wait, so that the requests of the next decode batch are named in any case.
    """

    def __init__(self, settings: SglangSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows)
        self._keep_runs(settings.block_tokens, counts_blocks=settings.kv_blocks is not None)

    def abort(self, request: Request) -> None:
        """A client gave up."""
        if request.serial:
            self.settle()
        super().abort(request)

    def complete(self, plan: Plan) -> Outcome:
        """As in ``RunEngine``."""
        if self._together:
            self._launched.popleft()
        return super().complete(plan)

    def _schedule_plainly(self) -> Plan:
        return Sglang.schedule(self)

    def _complete_plainly(self, plan: Plan) -> Outcome:
        return Sglang.complete(self, plan)

    def _decoding(self) -> list[Request]:
        return self.running.requests

    def _plans_in_flight(self) -> int:
        return len(self._launched)

    def _steps_ahead(self, sequences: int) -> int:
        """Until the inbox is looked into, or the pages run out with what may be evicted."""
        settings, cache = self.settings, self.cache
        refused = self.running.full and not settings.priority_preemption
        if self._last_prefill or self.chunked is not None or (self.waiting.requests and not refused):
            return 0
        pages = cache.available_tokens // cache.page_tokens
        affordable = (pages // sequences - 1) * cache.page_tokens
        unreceived = settings.recv_interval - 1 - self._steps_since_receive if self.inbox else NEVER
        return min(affordable, unreceived)

    def _went_on(self, steps: int) -> None:
        settings, running = self.settings, self.running
        self._steps_since_receive = (self._steps_since_receive + steps) % settings.recv_interval
        if settings.priority_preemption:
            running.full = False
        running.ratio.decay(steps)
        self._take_pages_for(steps)

    def _take_pages_for(self, steps: int) -> None:
        """As ``Running`` does step by step, where anything must be evicted."""
        steady, cache = self.steady, self.cache
        page, due, first = cache.page_tokens, steady.blocks_due, steady.scheduled + 1
        rounds, more = divmod(steps, page)
        pages = rounds * steady.count + sum(due[number % page] for number in range(first, first + more))
        if cache.free_pages >= pages + steady.count or not cache.tree.evictable_tokens:
            cache.free_pages -= pages
            return
        for number in range(first, first + steps):
            pages = due[number % page]
            cache.make_free(pages * page)
            cache.make_free(steady.count * page)
            cache.free_pages -= pages

    def _launched_late(self, plan: Plan) -> None:
        self._launched.append(Launched(plan, set()))

    def _settle_blocks(self, request: Request) -> None:
        self.cache.held[request].private_pages += self.cache.missing_pages(request, request.computed_tokens)

    def _finish(self, request: Request) -> None:
        self._end(request, Status.FINISHED)
