"""Which kind of replica a deployment has."""

from __future__ import annotations

from collections.abc import Callable

from sim.engine.request import Request
from sim.fleet import fast_replica
from sim.fleet.assembly import Setup
from sim.fleet.parallel_engines import overlaps_batches
from sim.fleet.pipeline import PipelineReplica, RankedPipelineReplica
from sim.fleet.rank_choice import CHOICES
from sim.fleet.ranks import RankedReplica, RankGroup
from sim.fleet.replica import Replica
from sim.results.pipelines import PipelineRecorder
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog
from sim.results.steps import StepLog
from sim.results.streams import StreamLog


def build_recorder(
    setup: Setup, requests: RequestLog, steps: StepLog, replica: int, streams: StreamLog | None
) -> ReplicaRecorder:
    """What writes down the steps of one replica."""
    overlapping = overlaps_batches(setup.deployment.parallel, setup.rules)
    kind = PipelineRecorder if overlapping else ReplicaRecorder
    return kind(requests, steps, replica, streams)


def build_replica(
    setup: Setup,
    recorder: ReplicaRecorder,
    requests: RequestLog,
    on_finish: Callable[[Request], None],
    *,
    plain: bool = False,
) -> Replica:
    """A fresh replica; ``plain``: without short cuts."""
    parallel, pipelined = setup.deployment.parallel, isinstance(recorder, PipelineRecorder)
    engines = [setup.engine(plain=plain or pipelined) for _ in range(parallel.data)]
    if parallel.data > 1:
        group = RankGroup(engines, CHOICES[setup.rules.engine](engines))
        if pipelined:
            return RankedPipelineReplica(group, setup.cost, recorder, requests, on_finish, stages=parallel.pipeline)
        return RankedReplica(group, setup.cost, recorder, requests, on_finish)
    if pipelined:
        return PipelineReplica(engines[0], setup.cost, recorder, requests, on_finish, stages=parallel.pipeline)
    return fast_replica.build_replica(engines[0], setup.cost, recorder, requests, on_finish)
