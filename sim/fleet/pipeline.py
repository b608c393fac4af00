"""A replica whose layers are split into pipeline stages."""

from __future__ import annotations

from collections.abc import Callable

from sim.engine.protocol import Engine, Plan
from sim.engine.request import Request
from sim.fleet.ranks import GroupPlan, RanksInReplica
from sim.fleet.replica import Replica
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog
from sim.results.steps import ROUNDING
from sim.work import CostModel, StepTime, StepWork


class PipelineReplica(Replica):
    """``Replica`` with as many batches in flight as there are stages.

    As in vLLM's ``step_with_batch_queue`` (0.9 to 0.33): while fewer are in flight the next batch is planned at once,
    even if the first stage is still busy; where nothing can be planned the engine waits for the oldest batch, and sees
    no arrival before. A request whose token is in flight has nothing to compute, so the scheduler passes over it (its
    ``num_new_tokens`` is 0), but the next chunk of a prompt may follow in the very next batch. Bubbles come by
    themselves.

    A stage takes a batch when it has left the stage before and the batch before has left this one. A step of the table
    lasts from the end of the step before (or its own plan) to its own end, so that steps do not overlap; its parts are
    those of all stages, scaled to that time where stages worked at once.
    """

    def __init__(
        self,
        engine: Engine,
        cost: CostModel,
        recorder: ReplicaRecorder,
        requests: RequestLog,
        on_finish: Callable[[Request], None],
        *,
        stages: int,
    ) -> None:
        """``engine`` plans steps one by one: its own ``steps_in_flight`` is 1."""
        assert engine.steps_in_flight == 1, "tokens in flight have no placeholders here"
        super().__init__(engine, cost, recorder, requests, on_finish)
        self._stages = stages
        self._stage_free_s = [0.0] * stages

    def _hand_over(self, plan: Plan, now_s: float) -> None:
        for request, _, resumed in plan.admitted:
            if resumed:
                self._forget(request)
        super()._hand_over(plan, now_s)

    def _forget(self, request: Request) -> None:
        """A preempted request computes everything anew: the token it still has in flight will be sampled again."""
        for step in self._in_flight:
            plan = step[0]
            assert isinstance(plan, Plan), "nothing looks ahead here"
            for part in (plan, *(plan.ranks if isinstance(plan, GroupPlan) else ())):
                if request in part.sampled:
                    part.sampled.remove(request)

    def _launch(self, plan: Plan | list[Request], work: StepWork, now_s: float) -> float:
        """Returns when the host is ready for more."""
        busy = work.chunks or work.decode_sequences
        stages = self._times(plan, work) if busy else ()
        ready_s = now_s + (stages[0].host_s if stages else 0.0)
        planned_s = max(now_s, self._device_free_s)
        end_s = self._pass_through(stages, ready_s)
        self._device_free_s = end_s = max(end_s, planned_s)
        attended = work.decode_context_tokens + sum(map(sum, work.chunks))
        counts = (work.prefill_tokens, work.decode_sequences, attended)
        self._in_flight.append((plan, planned_s, end_s, *counts, *_parts(stages, end_s - planned_s)))
        return ready_s

    def _times(self, plan: Plan | list[Request], work: StepWork) -> tuple[StepTime, ...]:  # noqa: ARG002
        return self._cost.stage_times(work)

    def _pass_through(self, stages: tuple[StepTime, ...], ready_s: float) -> float:
        """When a batch that is ready at ``ready_s`` leaves the last stage."""
        free_s = self._stage_free_s
        for index, stage in enumerate(stages):
            ready_s = free_s[index] = max(ready_s, free_s[index]) + stage.device_s
        return ready_s

    def _set_next(self, now_s: float, ready_s: float | None) -> None:
        in_flight = self._in_flight
        if ready_s is not None and len(in_flight) < self._stages:
            self._completes = False
            self.next_s = ready_s
        else:
            super()._set_next(now_s, ready_s)


class RankedPipelineReplica(RanksInReplica, PipelineReplica):
    """Data-parallel ranks, each of whose batches goes through the pipeline together with one of every other rank."""

    def _times(self, plan: Plan | list[Request], work: StepWork) -> tuple[StepTime, ...]:  # noqa: ARG002
        assert isinstance(plan, GroupPlan), "a group makes these plans"
        return self._cost.group_stage_times([part.work for part in plan.ranks])


def _parts(stages: tuple[StepTime, ...], duration_s: float) -> tuple[float, float, float, float]:
    """Compute, memory, communication and launch seconds of all stages, scaled down to the step's duration."""
    if not stages:
        return 0.0, 0.0, 0.0, 0.0
    sums = [sum(times) for times in zip(*(stage[1:] for stage in stages), strict=True)]
    device_s = sum(sums)
    share = duration_s / device_s if device_s > duration_s * (1 + ROUNDING) else 1.0
    compute_s, memory_s, communication_s, launch_s = (part_s * share for part_s in sums)
    return compute_s, memory_s, communication_s, launch_s
