"""TensorRT-LLM's scheduler with its decodes kept as sums, where nothing is ever paused (guaranteed-no-evict)."""

from __future__ import annotations

from sim.engine.protocol import Outcome, Plan
from sim.engine.queues import ARRIVAL
from sim.engine.request import Request, Status
from sim.engine.steady import SteadyBatch
from sim.engine.steady_engine import SteadyEngine
from sim.engine.step import Step
from sim.engine.trtllm.capacity import in_context
from sim.engine.trtllm.scheduler import TrtLlm, TrtLlmSettings

RUNNING = Status.RUNNING


def fast_trtllm(settings: TrtLlmSettings, windows: tuple[int, ...] = ()) -> TrtLlm:
    """With short cuts where they are known: policies that pause requests, or make them wait for others, have none."""
    kind = FastTrtLlm if settings.capacity_policy == "guaranteed-no-evict" else TrtLlm
    return kind(settings, windows)


class PromisedBatch(SteadyBatch):
    """A steady batch whose members' blocks are promised up to their ends."""

    promised = 0
    """Blocks that the members have yet to take."""

    def join(self, request: Request) -> None:
        """As in ``SteadyBatch``; whose context ends here is ranked among those of the same step."""
        super().join(request)
        if request.computed_tokens == request.register_at:
            request.rank = request.serial

    def _add(self, request: Request) -> None:
        super()._add(request)
        self.promised += self._blocks_to_come(request)

    def _take_out(self, request: Request) -> None:
        super()._take_out(request)
        self.promised -= self._blocks_to_come(request)

    def _blocks_to_come(self, request: Request) -> int:
        computed = request.computed_tokens + self.scheduled - request.joined_at
        return -(-request.most_tokens // self.block_tokens) + -computed // self.block_tokens


class FastTrtLlm(SteadyEngine, TrtLlm):
    """Decides exactly as ``TrtLlm`` does, whose code takes every step in which not all that generate get a token."""

    steady: PromisedBatch

    def __init__(self, settings: TrtLlmSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(settings, windows)
        steady = PromisedBatch(settings.block_tokens, windows, steps_ahead=self.steps_in_flight - 1)
        self._keep_sums(steady, None if settings.kv_blocks is None else steady.blocks_due)

    def _decide(self) -> Step | None:
        steady = self.steady
        number = steady.scheduled + 1
        steady.drop(number)
        if steady.count > self.settings.max_batched_tokens or not all(map(in_context, self._rest)):
            return None
        step = Step()
        if self._rest or self.waiting:
            fitting = self._capacity.contexts(steady.count, steady.promised, self._rest, self.waiting)
            self._share_out(step, fitting, steady.count)
        self._take_blocks(self.blocks_due[number % steady.block_tokens])
        return step

    def _made(self, plan: Plan) -> None:
        super()._made(plan)
        if plan.admitted:
            self._rest.sort(key=ARRIVAL)

    def last_known_step(self) -> int:
        """Until a member leaves: its blocks are promised to it."""
        steady, settings = self.steady, self.settings
        steady.drop(steady.scheduled + 1)
        count = steady.count
        if not count or self._rest or self._named_late or count > settings.max_batched_tokens:
            return 0
        if self.waiting and count < settings.max_sequences:
            missing = self._capacity.to_completion(self.waiting.head())
            if missing <= self.cache.free - steady.promised:
                return 0
        return steady.last_unchanged()

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result. The blocks of a context that was completed can be reused from now on."""
        if self._caching:
            for request in self._in_flight.get(plan.number, plan).sampled:
                if request.status is RUNNING and request.known_tokens == request.register_at:
                    self.cache.store(request)
        return super().complete(plan)

    def complete_steady(self) -> tuple[list[Request], list[Request]] | None:
        """As in ``SteadyEngine``. The blocks of contexts that were completed can be reused from now on."""
        if self._caching and not self._named_late:
            for request in self._prompts.get(self.steady.completed + 1, ()):
                if request.status is RUNNING:
                    self.cache.store(request)
        return super().complete_steady()

    def _schedule_plainly(self) -> Plan:
        return TrtLlm.schedule(self)

    def _settle_blocks(self, request: Request) -> None:
        self.cache.settle(request)

    def _take_blocks(self, blocks: int) -> None:
        self.steady.promised -= blocks
        self.cache.take(blocks)

    def _merged(self, named: list[Request], members: list[Request]) -> list[Request]:
        """What is named are contexts, which come first."""
        return [*named, *members]

    def _in_order(self, ended: list[Request]) -> list[Request]:
        return sorted(ended, key=_contexts_first)


def _contexts_first(request: Request) -> tuple[bool, int]:
    """Answers of one token end with their context, and contexts stand as they were chosen; others by arrival."""
    generating = request.final_tokens - request.prompt_tokens > 1
    return generating, request.order if generating else request.rank
