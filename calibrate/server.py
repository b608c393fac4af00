"""An engine's host overheads, fitted so that a simulated client sees what a real one saw.

Each result file is a run of a load generator against one server; the workload says what was served, on what, and the
lengths. The file's own rate or concurrency and its number of requests are simulated, and the overheads moved until TTFT
and TPOT agree. Few runs cannot tell six constants apart, so each is held near the engine's own by a prior (a factor
``PRIOR_FACTOR`` is one standard deviation): what the data do not say stays as it was, and its uncertainty says so.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sim.api
from sim.bench import BenchResult, read_results
from sim.errors import RidgelineError
from sim.fleet.assembly import assemble
from sim.hardware import HardwareProfile, HostOverheads
from sim.hardware.writing import save_profile

FITTED = ("step_s", "sequence_s", "layer_gap_s", "prefill_layer_s", "request_latency_s", "request_serial_s")
FLOOR_S = {
    "step_s": 1e-4, "sequence_s": 1e-6, "layer_gap_s": 1e-7, "prefill_layer_s": 1e-6, "request_latency_s": 1e-4,
    "request_serial_s": 1e-5,
}  # fmt: skip
"""Where an engine's record has less than this, the prior is here."""
PRIOR_FACTOR = 3.0
MEASUREMENT_ERROR = 0.03
"""What runs of one point differ by."""
MOST_EVALUATIONS = 12
LARGEST_FACTOR = 100.0
METRICS = ("ttft_s", "tpot_s")
STATISTICS = ("mean", "p50")
CURE = "give files of runs with a rate or a concurrency, and TTFT or TPOT"


@dataclass(frozen=True, slots=True)
class Observation:
    """One figure of one run."""

    file: str
    metric: str
    statistic: str
    measured: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what to simulate, and what was seen."""

    overrides: Mapping[str, Any]
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFit:
    """The fitted overheads; factors are of one standard deviation, ``PRIOR_FACTOR`` where the runs say nothing."""

    engine: str
    overheads: HostOverheads
    uncertainty: Mapping[str, float]
    before: tuple[float, ...]
    """Predicted, in order of ``observations``, with the overheads it began with; ``after``: with the fitted ones."""
    after: tuple[float, ...]
    observations: tuple[Observation, ...]

    def error(self, predicted: Sequence[float]) -> float:
        """Median of |predicted / measured - 1|."""
        measured = [seen.measured for seen in self.observations]
        return float(np.median(np.abs(np.array(predicted) / measured - 1)))


def run_of(path: Path, result: BenchResult) -> Run:
    """What to simulate for a result, and what it says. Raises RidgelineError where it says too little."""
    observations = []
    for metric in METRICS:
        figures = result.metrics.get(metric, {})
        statistic = next((name for name in STATISTICS if name in figures), None)
        if statistic is not None and figures[statistic] > 0:
            observations.append(Observation(path.name, metric, statistic, figures[statistic]))
    count = result.completed or result.settings.get("num_prompts")
    if not observations or not count:
        raise RidgelineError(f"{path}: neither TTFT nor TPOT, or no number of requests\n  cure: {CURE}")
    return Run({"traffic.arrivals": _arrivals(path, result), "traffic.requests": int(count)}, tuple(observations))


def _arrivals(path: Path, result: BenchResult) -> dict[str, Any]:
    """The arrival process of a run, by the tool that made it."""
    settings = result.settings
    rate = _number(settings, "request_rate", "rate", "requested_rate")
    limit = _number(settings, "max_concurrency", "concurrency", "streams")
    if rate is None and limit is not None:
        return {"process": "closed", "concurrency": int(limit)}
    if rate is None and settings.get("request_rate") in {"inf", None} and result.tool in {"vllm", "sglang"}:
        return {"process": "burst"}
    if rate is None:
        raise RidgelineError(f"{path}: neither a rate nor a concurrency\n  cure: {CURE}")
    bounded = {} if limit is None else {"max_concurrency": int(limit)}
    if result.tool == "vllm":
        burstiness = _number(settings, "burstiness") or 1.0
        return {"process": "vllm-bench", "rate": rate, "burstiness": burstiness, **bounded}
    if result.tool == "sglang":
        return {"process": "sglang-bench", "rate": rate, **bounded}
    constant = settings.get("type_") == "constant"
    return {"process": "constant" if constant else "poisson", "rate": rate, **bounded}


def _number(settings: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = settings.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return float(value)
    return None


def fit_server(
    runs: Sequence[Run], workload: str, base: HardwareProfile, progress: Callable[[int], None] | None = None
) -> ServerFit:
    """Fit the overheads of the engine that ``workload`` (a path, or an example's name) runs, on the device ``base``."""
    from scipy.optimize import least_squares

    setup = assemble(sim.api.load(workload))
    engine, prior = setup.rules.engine, setup.rules.host
    centre = {name: max(getattr(prior, name), FLOOR_S[name]) for name in FITTED}
    seen = tuple(observation for run in runs for observation in run.observations)
    evaluations = 0

    def predict(factors: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal evaluations
        evaluations += 1
        if progress is not None:
            progress(evaluations)
        values = {name: centre[name] * math.exp(x) for name, x in zip(FITTED, factors, strict=True)}
        return _predict(runs, workload, base, engine, HostOverheads(**values, source="a trial"))

    def residuals(factors: NDArray[np.float64]) -> NDArray[np.float64]:
        misfit = np.log(predict(factors) / [observation.measured for observation in seen]) / MEASUREMENT_ERROR
        return np.concatenate((misfit, factors / math.log(PRIOR_FACTOR)))

    bound = math.log(LARGEST_FACTOR)
    found = least_squares(
        residuals, np.zeros(len(FITTED)), bounds=(-bound, bound), diff_step=0.05, max_nfev=MOST_EVALUATIONS,
        loss="soft_l1",
    )  # fmt: skip
    deviation = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
    values = {name: float(f"{centre[name] * math.exp(x):.4g}") for name, x in zip(FITTED, found.x, strict=True)}
    files = sorted({observation.file for observation in seen})
    fitted = HostOverheads(**values, source=f"fitted by calibrate server on {', '.join(files)}")
    return ServerFit(
        engine=engine,
        overheads=fitted,
        uncertainty={name: float(math.exp(x)) for name, x in zip(FITTED, deviation, strict=True)},
        before=tuple(_predict(runs, workload, base, engine, prior)),
        after=tuple(_predict(runs, workload, base, engine, fitted)),
        observations=seen,
    )


def _predict(
    runs: Sequence[Run], workload: str, base: HardwareProfile, engine: str, overheads: HostOverheads
) -> NDArray[np.float64]:
    """Every observation's figure, simulated."""
    profile = with_overheads(base, engine, overheads, "")
    predicted = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{base.name}.yaml"
        save_profile(profile, path)
        for run in runs:
            summary = sim.api.run(workload, overrides={**run.overrides, "hardware": str(path)}).summary
            for observation in run.observations:
                value = summary[observation.metric][observation.statistic]
                predicted.append(math.nan if value is None else value)
    return np.array(predicted)


def with_overheads(base: HardwareProfile, engine: str, overheads: HostOverheads, date: str) -> HardwareProfile:
    """The profile with these overheads of one engine, which are meant for this very host."""
    slowdown = base.host.slowdown
    own = replace(overheads, **{name: getattr(overheads, name) / slowdown for name in FITTED})
    host = replace(base.host, overheads={**base.host.overheads, engine: own}, calibrated=True, date=date or None)
    return replace(base, host=host)


def runs_of(paths: Sequence[Path]) -> list[Run]:
    """Every run of every file."""
    return [run_of(path, result) for path in paths for result in read_results(path)]
