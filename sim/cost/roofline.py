"""The roofline model of a decoder on the GPUs of one replica, in whatever way they share it."""

from __future__ import annotations

from collections.abc import Sequence

from sim.cost.stage import StageCost
from sim.hardware import HardwareProfile, HostOverheads
from sim.models.parallel import ONE_GPU
from sim.models.spec import ModelSpec
from sim.parallel import Parallelism
from sim.work import BandwidthShare, KernelFactor, StepTime, StepWork


class RooflineCost(StageCost):
    """Seconds of a step of one replica.

    ``ideal``: datasheet peaks and perfect overlap within each operator, no launches, no host, no padding. Otherwise the
    profile's curves, the engine's host overheads (``host``) and kernels known to be slower (``factors``); steps that
    only decode are padded to the next of ``graph_sizes``. ``step_time`` is that of a step that has the replica to
    itself: with several pipeline stages, all of them in turn.
    """

    def __init__(
        self,
        model: ModelSpec,
        profile: HardwareProfile,
        *,
        parallel: Parallelism = ONE_GPU,
        kv_dtype: str = "auto",
        host: HostOverheads | None = None,
        ideal: bool = False,
        graph_sizes: tuple[int, ...] = (),
        factors: tuple[KernelFactor, ...] = (),
        shares: tuple[BandwidthShare, ...] = (),
    ) -> None:
        def part(stage: int) -> StageCost:
            return StageCost(
                model,
                profile,
                parallel,
                stage,
                kv_dtype=kv_dtype,
                host=host,
                ideal=ideal,
                graph_sizes=graph_sizes,
                factors=factors,
                shares=shares,
            )

        super().__init__(
            model,
            profile,
            parallel,
            None,
            kv_dtype=kv_dtype,
            host=host,
            ideal=ideal,
            graph_sizes=graph_sizes,
            factors=factors,
            shares=shares,
        )
        self._stages = (self,) if parallel.pipeline == 1 else tuple(part(stage) for stage in range(parallel.pipeline))

    def stage_times(self, work: StepWork) -> tuple[StepTime, ...]:
        """Of each pipeline stage; all of the host's time is the first one's, each but the last sends to the next."""
        return tuple(stage.step_time(work) for stage in self._stages)

    def group_stage_times(self, works: Sequence[StepWork]) -> tuple[StepTime, ...]:
        """``group_time`` of each pipeline stage."""
        return tuple(stage.group_time(works) for stage in self._stages)
