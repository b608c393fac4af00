"""``result.plot``: the figures of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sim.errors import RidgelineError
from sim.results.summary import measured_rows

if TYPE_CHECKING:
    import pandas as pd

    from sim.report.figures.roofline import Operator
    from sim.report.figures.style import Drawing


class Run(Protocol):
    """What is drawn: a ``sim.Result``."""

    @property
    def summary(self) -> dict[str, Any]:
        """The object of ``sim run --json``."""

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request."""

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step."""

    @property
    def loaded(self) -> Any:
        """The scenario."""

    @property
    def operators(self) -> Mapping[str, Sequence[Operator]]:
        """Of its median prefill and decode step; empty for the linear model."""

    @property
    def hardware(self) -> Any:
        """The device: ``peak_flops_per_s`` by dtype and ``hbm_bytes_per_s``."""


class Plots:
    """Figures of one run; each method makes a new matplotlib Figure, and calling it the most telling ones together.

    Latencies leave out the warm-up, as the summary does; what happens over time shows the whole run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self) -> Drawing:
        """Latencies, their parts, the load over time and the bounds on one page."""
        from sim.report import figures

        return figures.overview(self._run.summary, self._measured, self._run.steps)

    @property
    def _measured(self) -> pd.DataFrame:
        requests = self._run.requests
        columns = {"arrival_s": requests["arrival_s"].to_numpy(dtype=float)}
        return requests[measured_rows(columns, self._run.loaded.spec.measure.warmup)]

    def latency(self) -> Drawing:
        """TTFT, TPOT and E2E distributions against the SLO."""
        from sim.report import figures

        return figures.latency_cdf(self._measured, self._run.summary.get("slo"))

    def breakdown(self) -> Drawing:
        """What TTFT and the time per token are made of."""
        from sim.report import figures

        return figures.latency_breakdown(self._measured)

    def timeline(self) -> Drawing:
        """Queue, KV cache, tokens per second, TTFT and bounds over simulated time."""
        from sim.report import figures

        blocks = (self._run.summary.get("kv") or {}).get("capacity_blocks")
        return figures.timeline(self._run.steps, self._run.requests, blocks)

    def throughput_latency(self) -> Drawing:
        """Latency over throughput, a point for each stretch of the run."""
        from sim.report import figures

        return figures.throughput_latency(self._run.requests, self._run.steps)

    def bounds(self) -> Drawing:
        """What bounded the fleet's time."""
        from sim.report import figures

        return figures.bound_shares(self._run.summary)

    def roofline(self) -> Drawing:
        """Operators of the run's median prefill and decode step under the device's roof.

        Raises RidgelineError where steps are not made of operators: the linear model has none.
        """
        from sim.report import figures

        operators, hardware = self._run.operators, self._run.hardware
        if not operators:
            raise RidgelineError("the linear model has no operators\n  cure: use cost: {model: roofline}")
        used = {operator.dtype for step in operators.values() for operator in step if operator.flops}
        peaks = {dtype: peak for dtype, peak in hardware.peak_flops_per_s.items() if dtype in used}
        return figures.roofline(operators, peak_flops_per_s=peaks, hbm_bytes_per_s=hardware.hbm_bytes_per_s)

    def all(self) -> dict[str, Drawing]:
        """Every figure of the report, by name, in its order."""
        drawn = {
            "latency": self.latency(),
            "breakdown": self.breakdown(),
            "bounds": self.bounds(),
            "timeline": self.timeline(),
            "throughput_latency": self.throughput_latency(),
        }
        return {**drawn, "roofline": self.roofline()} if self._run.operators else drawn
