"""``FastVllmV1`` for models with several KV block tables, without prefix caching."""

from __future__ import annotations

import heapq

from sim.engine.cache.window_counts import WindowCounts
from sim.engine.protocol import Outcome, Plan, Prompts
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.engine.steady import Due, SteadyBatch
from sim.engine.step import Step
from sim.engine.versions import VllmV1Rules
from sim.engine.vllm_fast import FastVllmV1


class GroupedBatch(SteadyBatch):
    """A steady batch whose members take a block of every group at a time, and free one where a window moves on.

    A step that ends at ``t`` tokens of a member frees what is out of its windows after ``t - 1 - lag`` tokens: with
    ``lag`` 1 the step before is in flight and does not count yet. The first ``1 + lag`` steps of a member, who is
    ``young`` then, may free more: blocks of all the tokens that it joined with.
    """

    def __init__(
        self, block_tokens: int, windows: tuple[int, ...], cache: WindowCounts, *, steps_ahead: int, lag: int
    ) -> None:
        super().__init__(block_tokens, windows, steps_ahead=steps_ahead)
        self.lag = lag
        self.net_due = [0] * block_tokens
        """Blocks that members take less those they free in the steps whose number leaves this remainder."""
        self.young: list[tuple[int, Request]] = []
        """(serial of joining, request)."""
        self._groups = len(cache.groups)
        self._group_windows = [group.window for group in cache.groups if group.window is not None]
        self._freeing: dict[Request, list[int]] = {}
        """Of members that are young no more, the remainders of the steps that free a block."""
        self._starting: list[Due] = []
        """Steps that free a member's first block of a group, heaped."""

    def taken(self, step: int) -> int:
        """Blocks that members take in a step, whatever they free."""
        return self._groups * self.blocks_due[step % self.block_tokens]

    def look_after_young(self, step: int, cache: WindowCounts) -> None:
        """Members that joined lately free what they may before this step."""
        young, self.young = self.young, []
        for serial, request in young:
            if request.serial != serial or not request.counted:
                continue
            before = step - 1 - request.joined_at
            in_flight = request.in_flight_tokens + before if self.lag else 0
            cache.trim(request, request.computed_tokens + before - in_flight)
            if before < self.lag:
                self.young.append((serial, request))
                continue
            self._freeing[request] = []
            offset = request.computed_tokens - request.joined_at
            for window in self._group_windows:
                heapq.heappush(self._starting, (self.block_tokens + window + self.lag - offset, serial, request))

    def start_freeing(self, step: int) -> None:
        """Members whose contexts outgrow a window by a block up to this step free one regularly from then on."""
        starting = self._starting
        while starting and starting[0][0] <= step:
            first, serial, request = heapq.heappop(starting)
            if request.serial == serial and request in self._freeing:
                phase = first % self.block_tokens
                self._freeing[request].append(phase)
                self.net_due[phase] -= 1

    def last_unchanged(self) -> int:
        """The last step to schedule before a member leaves, or begins to free blocks."""
        last = super().last_unchanged()
        return min(last, self._starting[0][0] - 1) if self._starting else last

    def affordable(self, step: int, last: int, free: int) -> int:
        """The last of these steps for whose blocks the free ones suffice, whatever each frees itself."""
        if (-(-(last + 1 - step) // self.block_tokens)) * self.count * self._groups <= free:
            return last
        round_trip, needed = 0, 0
        for number in range(step, step + self.block_tokens):
            needed = max(needed, round_trip + self.taken(number))
            round_trip += self.net_due[number % self.block_tokens]
        if needed <= free:
            rounds = 1 + (free - needed) // round_trip if round_trip > 0 else last
            step += rounds * self.block_tokens
            free -= rounds * round_trip
        while step <= last and self.taken(step) <= free:
            free -= self.net_due[step % self.block_tokens]
            step += 1
        return min(step - 1, last)

    def clear(self) -> None:
        super().clear()
        self.young.clear()
        self._starting.clear()

    def _add(self, request: Request) -> None:
        super()._add(request)
        self.net_due[(1 - request.computed_tokens + request.joined_at) % self.block_tokens] += self._groups
        self.young.append((request.serial, request))

    def _take_out(self, request: Request) -> None:
        super()._take_out(request)
        self.net_due[(1 - request.computed_tokens + request.joined_at) % self.block_tokens] -= self._groups
        for phase in self._freeing.pop(request, ()):
            self.net_due[phase] += 1


class FastWindowVllmV1(FastVllmV1):
    """For models with several KV block tables, without prefix caching."""

    cache: WindowCounts  # type: ignore[assignment]
    steady: GroupedBatch

    def __init__(self, rules: VllmV1Rules, settings: EngineSettings, windows: tuple[int, ...] = ()) -> None:
        super().__init__(rules, settings, windows)
        self.cache = WindowCounts(
            settings, unhashed_first=rules.unhashed_blocks_first, waits_for_steps=rules.windows_wait_for_steps
        )
        ahead = self.steps_in_flight - 1
        lag = ahead if rules.windows_wait_for_steps else 0
        steady = GroupedBatch(settings.block_tokens, windows, self.cache, steps_ahead=ahead, lag=lag)
        self._keep_sums(steady, steady.net_due)

    def _continue_all(self, number: int) -> Step | None:
        """As in ``FastVllmV1``; whatever the step itself frees does not count."""
        steady, cache = self.steady, self.cache
        step = Step(self.settings.max_batched_tokens - steady.count, 0)
        if step.budget < 0 or self._drained:
            return None
        if self._rest or self.waiting:
            step.threshold = self._threshold()
        taken = steady.taken(number)
        if taken > cache.pool.free or (self._rest and not self._continue_rest(step, taken)):
            return None
        steady.start_freeing(number)
        steady.look_after_young(number, cache)
        cache.pool.take_count(steady.net_due[number % steady.block_tokens])
        for request, tokens in step.scheduled:
            if request.computed_tokens + tokens >= request.visit_at:
                cache.extend(request, request.computed_tokens + tokens)
        return step

    @property
    def _drained(self) -> bool:
        """Fewer steps are in flight than what members free goes by; in a replica there are always as many."""
        steady = self.steady
        return steady.lag > 0 and steady.count > 0 and steady.scheduled - steady.completed != steady.lag

    def last_known_step(self) -> int:
        """As in ``FastVllmV1``, and until a member begins to free blocks."""
        if self._drained:
            return 0
        self.steady.start_freeing(self.steady.scheduled + 1)
        last = super().last_known_step()
        return 0 if self.steady.young else last

    def _affordable(self, number: int, last: int) -> int:
        return self.steady.affordable(number, last, self.cache.pool.free)

    def next_step(self) -> Plan | Prompts:
        """As in ``SteadyEngine``; windows may wait for the tokens that it schedules."""
        step = super().next_step()
        if isinstance(step, Prompts) and self.settings.async_scheduling:
            for request in step.requests:
                request.in_flight_tokens += request.computed_tokens
        return step

    def _plan(self, step: Step) -> Plan:
        if self.settings.async_scheduling:
            for request, tokens in step.scheduled:
                request.in_flight_tokens += tokens
        return super()._plan(step)

    def complete(self, plan: Plan) -> Outcome:
        """Apply a step's result."""
        if self.settings.async_scheduling:
            for request, tokens in self._in_flight.get(plan.number, plan).scheduled:
                request.in_flight_tokens -= tokens
        return super().complete(plan)

    def complete_steady(self) -> tuple[list[Request], list[Request]] | None:
        """As in ``SteadyEngine``."""
        if self.settings.async_scheduling and not self._named_late:
            for request in self._prompts.get(self.steady.completed + 1, ()):
                request.in_flight_tokens -= request.computed_tokens
        return super().complete_steady()

    def _settle_blocks(self, request: Request) -> None:
        steady = self.steady
        last = min(steady.scheduled, request.leaves_at)
        request.in_flight_tokens += max(0, last - max(steady.completed, request.joined_at))
        mature = last - request.joined_at > steady.lag
        self.cache.settle(request, request.computed_tokens - 1 - steady.lag if mature else None)
        request.joined_at = request.leaves_at = -1  # it may be settled once more, when it ends
