"""A finished run as a user holds it: summary, tables, plots, files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.results.files import write_text
from sim.results.requests import frame
from sim.results.summary import summarise

if TYPE_CHECKING:
    import pandas as pd

    from sim.cost import Operator
    from sim.fleet import RunRecord
    from sim.hardware import HardwareProfile


class Result:
    """What a run found.

    ``summary``: the object ``sim run --json`` prints. ``requests``: one row per request. ``steps``: one row per engine
    step. ``plot``: figures, as in ``result.plot.latency()``; ``result.plot()`` shows the most telling ones together.
    """

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.loaded = run.setup.loaded

    @cached_property
    def summary(self) -> dict[str, Any]:
        return summarise(self.run)

    @cached_property
    def requests(self) -> pd.DataFrame:
        return frame(self.run.requests)

    @cached_property
    def steps(self) -> pd.DataFrame:
        return self.run.steps.table.to_pandas()

    @cached_property
    def operators(self) -> dict[str, list[Operator]]:
        """Operators of the median ``prefill`` and ``decode`` step; empty for the linear model."""
        from sim.results.operators import typical_operators

        return typical_operators(self.run, self.steps)

    @property
    def hardware(self) -> HardwareProfile:
        """The device the run was on."""
        return self.run.setup.hardware

    @property
    def plot(self) -> Any:
        from sim.report.plots import Plots

        return Plots(self)

    def save(self, folder: str | Path, *, trace: bool = False, exports: Sequence[str] = ()) -> list[Path]:
        """Write summary.json, requests.parquet, steps.parquet and report.html (and trace.json.gz); each atomically.

        ``exports``: load generators (``sim.bench.EXPORTS``) as whose result files the run is written too; it must have
        been made with ``streams=True``. Returns the files. Raises OSError where the folder cannot be written.
        """
        from sim.report.html import html
        from sim.report.perfetto import write_trace
        from sim.results.files import write_frame

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / name for name in ("summary.json", "requests.parquet", "steps.parquet", "report.html")]
        write_text(written[0], json.dumps(self.summary, indent=2) + "\n")
        write_frame(written[1], self.requests)
        self.run.steps.table.write_parquet(written[2])
        write_text(written[3], html(self))
        if trace:
            written.append(folder / "trace.json.gz")
            write_trace(self.requests, self.run.steps.table.frames(), written[-1])
        for name in exports:
            written += self.export(name, folder)
        return written

    def export(self, name: str, folder: str | Path) -> list[Path]:
        """Write the run as the result file of a load generator (``sim.bench.EXPORTS``) and return what was written.

        Raises RidgelineError where the run was made without ``streams=True``.
        """
        from sim.bench import EXPORTS, bench_result, write_export
        from sim.errors import RidgelineError

        if self.run.streams is None:
            raise RidgelineError("the run kept no streams\n  cure: sim.run(..., streams=True)")
        return write_export(bench_result(self, EXPORTS[name]), name, Path(folder))

    def __repr__(self) -> str:
        summary, counts = self.summary, self.summary["requests"]
        served = f"{counts['completed']} of {counts['submitted']} requests"
        return f"<Result {summary['model']} on {summary['hardware']}: {served}>"

    def _repr_html_(self) -> str:
        from sim.report.display import result_html

        return result_html(self.summary)
