"""A replica with attention data parallelism: ranks with an engine of their own that step together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from sim.engine.protocol import Engine, Foresight, Outcome, Plan, Verified
from sim.engine.request import Request
from sim.fleet.rank_choice import RankChoice
from sim.fleet.replica import NO_TIME, InFlight, Replica
from sim.work import StepWork


@dataclass(slots=True)
class GroupPlan(Plan):
    """The plans of all ranks for one step, together and each by itself."""

    ranks: tuple[Plan, ...] = ()


class RankGroup:
    """The engines of all ranks as one: every step plans and completes a step of each.

    A rank's scheduler, KV pool and limits are its own. Counts are sums over ranks.
    """

    def __init__(self, ranks: Sequence[Engine], choice: RankChoice) -> None:
        self.ranks = ranks
        self.steps_in_flight = ranks[0].steps_in_flight
        self._choice = choice
        self._homes: dict[Request, Engine] = {}
        """The rank of each unfinished request."""

    @property
    def prefix_queries(self) -> int:
        return sum(rank.prefix_queries for rank in self.ranks)

    @property
    def prefix_hits(self) -> int:
        return sum(rank.prefix_hits for rank in self.ranks)

    @property
    def unfinished(self) -> int:
        return sum(rank.unfinished for rank in self.ranks)

    @property
    def running_count(self) -> int:
        return sum(rank.running_count for rank in self.ranks)

    @property
    def waiting_count(self) -> int:
        return sum(rank.waiting_count for rank in self.ranks)

    @property
    def kv_blocks_used(self) -> int:
        return sum(rank.kv_blocks_used for rank in self.ranks)

    def cached_tokens(self, request: Request) -> int:
        """On the rank that has most of it."""
        return max(rank.cached_tokens(request) for rank in self.ranks)

    def longest_request_tokens(self) -> int | None:
        return self.ranks[0].longest_request_tokens()

    def receive(self, request: Request, received_s: float) -> None:
        """A request arrives, and goes to one rank."""
        rank = self._homes[request] = self.ranks[self._choice.pick(request, received_s)]
        rank.add(request)

    def add(self, request: Request) -> None:
        """``receive``, at the beginning of time."""
        self.receive(request, 0.0)

    def abort(self, request: Request) -> None:
        home = self._homes.pop(request, None)
        if home is not None:
            home.abort(request)

    def schedule(self) -> GroupPlan:
        """A step of each rank; one without work has an empty plan."""
        plans = tuple(rank.schedule() for rank in self.ranks)
        return GroupPlan(
            [entry for plan in plans for entry in plan.scheduled],
            [entry for plan in plans for entry in plan.admitted],
            [request for plan in plans for request in plan.preempted],
            [request for plan in plans for request in plan.sampled],
            group_work([plan.work for plan in plans]),
            steady=sum(plan.steady for plan in plans),
            drafts={request: drafts for plan in plans for request, drafts in plan.drafts.items()},
            ranks=plans,
        )

    def complete(self, plan: Plan) -> Outcome:
        """The step of every rank that planned one."""
        assert isinstance(plan, GroupPlan), "a group completes its own plans"
        outcomes = [
            rank.complete(part)
            for rank, part in zip(self.ranks, plan.ranks, strict=True)
            if not part.empty or part.preempted
        ]
        finished = [request for outcome in outcomes for request in outcome.finished]
        for request in finished:
            del self._homes[request]
        return Outcome(
            [request for outcome in outcomes for request in outcome.emitted],
            finished,
            steady=sum(outcome.steady for outcome in outcomes),
            tokens=tuple(chain.from_iterable(outcome.tokens for outcome in outcomes)),
            verified=Verified(*map(sum, zip(*(outcome.verified for outcome in outcomes), strict=True))),
        )

    def settle(self) -> None:
        """Bring every request's own counts up to date."""
        for rank in self.ranks:
            if isinstance(rank, Foresight):
                rank.settle()

    def stepped(self, now_s: float) -> None:
        """A step ended: front ends may hear of it."""
        self._choice.stepped(now_s)


def group_work(works: Sequence[StepWork]) -> StepWork:
    """The work of all ranks together, for what is counted; the time it takes follows from each rank's."""
    windows = [work.decode_window_tokens for work in works if work.decode_window_tokens]
    return StepWork(
        tuple(chain.from_iterable(work.chunks for work in works)),
        sum(work.decode_sequences for work in works),
        sum(work.decode_context_tokens for work in works),
        tuple(map(sum, zip(*windows, strict=True))),
        sum(work.sampled_sequences for work in works),
        sum(work.draft_tokens for work in works),
    )


class RanksInReplica(Replica):
    """A replica whose engine is a ``RankGroup``: it says when requests arrive and steps end."""

    engine: RankGroup

    def close(self) -> None:
        """The run is over."""
        self.engine.settle()
        super().close()

    def _take_in(self, now_s: float) -> None:
        inbox, received_s = self._inbox, self._requests.received_s
        while inbox and inbox[0][0] <= now_s:
            time_s, request = inbox.popleft()
            received_s[request.order] = time_s
            self.engine.receive(request, time_s)
        super()._take_in(now_s)

    def _apply(self, plan: Plan, step: InFlight) -> None:
        super()._apply(plan, step)
        self.engine.stepped(step[2])


class RankedReplica(RanksInReplica):
    """``Replica``, whose steps are those of all ranks at once.

    The experts' all-to-all makes ranks wait for one another in every layer, so the slowest sets the step, and ranks
    without work run a dummy step while any has some (vLLM's ``execute_dummy_batch``, SGLang's idle batch,
    TensorRT-LLM's attention-DP dummy request). A step is one row of the step table: counts are sums over the ranks, the
    time is the group's.
    """

    def _launch(self, plan: Plan | list[Request], work: StepWork, now_s: float) -> float:
        """Returns when the host is ready for more."""
        assert isinstance(plan, GroupPlan), "a group makes these plans"
        busy = work.chunks or work.decode_sequences
        time = self._cost.group_time([part.work for part in plan.ranks]) if busy else NO_TIME
        planned_s = max(now_s, self._device_free_s)
        ready_s = now_s + time.host_s
        self._device_free_s = end_s = max(ready_s, self._device_free_s) + time.device_s
        attended = work.decode_context_tokens + sum(map(sum, work.chunks))
        counts = (work.prefill_tokens, work.decode_sequences, attended)
        self._in_flight.append((plan, planned_s, end_s, *counts, *time[1:]))
        return ready_s
