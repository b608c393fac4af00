"""One operator of a step as a user may look at it: what it computes, what it moves, how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cost.curves import Parts
from sim.work import Bound


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a step on one GPU; FLOPs, bytes and time cover all ``count`` executions."""

    name: str
    count: int
    flops: float
    hbm_bytes: float
    parts: Parts
    dtype: str
    """Of the peak it runs at."""

    @property
    def seconds(self) -> float:
        return self.parts.total_s

    @property
    def bound(self) -> Bound:
        """What most of its time goes to; kernel launch counts as host."""
        named: tuple[tuple[float, Bound], ...] = (
            (self.parts.compute_s, "compute"),
            (self.parts.memory_s, "memory"),
            (self.parts.communication_s, "communication"),
            (self.parts.launch_s, "host"),
        )
        return max(named, key=lambda part: part[0])[1]


def total(operators: list[Operator]) -> Parts:
    """Sum of the parts, in order."""
    compute = memory = communication = launch = 0.0
    for operator in operators:
        parts = operator.parts
        compute += parts.compute_s
        memory += parts.memory_s
        communication += parts.communication_s
        launch += parts.launch_s
    return Parts(compute, memory, communication, launch)
