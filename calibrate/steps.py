"""A linear step-time model from an engine's own step log, and the server's time between engine and client.

The log is the one ``sim conform`` replays (``sim/fleet/step_log.py``). A step takes from its start to the next one's
where the engine goes straight on, else to its own end. Fitted by least squares on relative errors with a soft loss
(one step in a thousand is a garbage collection), all coefficients at least 0. A log holds one or several runs (what
stands before the last dash of a request's name). Shared hosts drift, so every run has a speed of its own in the fit,
and the coefficients are those at the median speed; a run is judged by a fit that did not see it, as it is and with its
speed taken out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost import LinearCost
from sim.errors import RidgelineError
from sim.fleet.step_log import LiveLog, read_step_log, token_times
from sim.work import PrefillChunk, StepWork

COEFFICIENTS = ("prefill_step_s", "prefill_s_per_token", "step_s", "step_s_per_sequence", "step_s_per_context_token")
LEAST_STEPS = 50
ROUNDS = 20
"""Of fitting coefficients at given speeds, and speeds at given coefficients."""
SOFT = 0.1
"""Relative error beyond which a step pulls less than its square."""
GOES_ON_S = 0.01
"""A next step that starts within this of the end before was waited for by nobody but the engine's own loop."""


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step of a log."""

    run: str
    work: StepWork
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """How well a fit that did not see a run predicts it; errors are medians of |predicted / measured - 1|."""

    run: str
    steps: int
    error: float
    speed: float
    """Median of measured / predicted: above 1, the host was slower than in the other runs."""
    error_at_speed: float
    """With that factor taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """The fitted model, with one standard error per coefficient and its errors."""

    cost: LinearCost
    standard_errors: Mapping[str, float]
    steps: int
    error: float
    """Median of |predicted / measured - 1| over the steps fitted, each at the speed of its run."""
    p90_error: float
    speeds: Mapping[str, float]
    """Of each run, relative to the median one: above 1, the host was slower."""
    runs: tuple[RunError, ...]
    """Each left out in turn; empty where the log has one run."""


def samples_of(log: LiveLog) -> list[StepSample]:
    """Every step that scheduled something, with its work and how long it kept the engine."""
    prompts = {arrival.name: arrival.prompt_tokens for arrival in log.arrivals}
    following = [*(step.start_s for step in log.steps[1:]), float("inf")]
    samples = []
    for step, next_s in zip(log.steps, following, strict=True):
        scheduled = [entry for entry in step.fields["scheduled"] if entry[1]]
        if scheduled:
            until_s = next_s if next_s - step.end_s < GOES_ON_S else step.end_s
            run = str(scheduled[0][0]).rpartition("-")[0]
            samples.append(StepSample(run, _work(scheduled, prompts), until_s - step.start_s))
    return samples


def _work(scheduled: Sequence[Sequence[Any]], prompts: Mapping[str, int]) -> StepWork:
    decodes = [(tokens, before) for name, tokens, before in scheduled if tokens == 1 and before >= prompts[name]]
    chunks = tuple(
        PrefillChunk(tokens, before)
        for name, tokens, before in scheduled
        if not (tokens == 1 and before >= prompts[name])
    )
    return StepWork(chunks, len(decodes), sum(tokens + before for tokens, before in decodes))


def fit_steps(samples: Sequence[StepSample]) -> StepFit:
    """Fit all samples, and every run by the others. Raises RidgelineError where there are too few steps."""
    if len(samples) < LEAST_STEPS:
        raise RidgelineError(
            f"{len(samples)} steps are too few to fit {len(COEFFICIENTS)} coefficients\n"
            f"  cure: give a log of at least {LEAST_STEPS} steps, with prompts and decodes"
        )
    values, deviations, speeds = _fit(samples)
    speed = np.array([speeds[sample.run] for sample in samples])
    errors = np.abs(_predicted(values, samples) * speed / _measured(samples) - 1)
    return StepFit(
        cost=LinearCost(**dict(zip(COEFFICIENTS, values.tolist(), strict=True))),
        standard_errors=dict(zip(COEFFICIENTS, deviations.tolist(), strict=True)),
        steps=len(samples),
        error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        speeds=speeds,
        runs=_left_out(samples),
    )


def _left_out(samples: Sequence[StepSample]) -> tuple[RunError, ...]:
    runs = list(dict.fromkeys(sample.run for sample in samples))
    found = []
    for run in runs if len(runs) > 1 else ():
        mine = [sample for sample in samples if sample.run == run]
        others = [sample for sample in samples if sample.run != run]
        if len(others) < LEAST_STEPS:
            continue
        ratio = _predicted(_fit(others)[0], mine) / _measured(mine)
        speed = 1 / float(np.median(ratio))
        found.append(
            RunError(
                run=run,
                steps=len(mine),
                error=float(np.median(np.abs(ratio - 1))),
                speed=speed,
                error_at_speed=float(np.median(np.abs(ratio * speed - 1))),
            )
        )
    return tuple(found)


def _features(samples: Sequence[StepSample]) -> NDArray[np.float64]:
    return np.array(
        [
            (
                bool(work.chunks),
                work.prefill_tokens,
                bool(work.decode_sequences),
                work.decode_sequences,
                work.decode_context_tokens,
            )
            for work in (sample.work for sample in samples)
        ],
        dtype=np.float64,
    )


def _measured(samples: Sequence[StepSample]) -> NDArray[np.float64]:
    return np.array([sample.seconds for sample in samples])


def _predicted(values: NDArray[np.float64], samples: Sequence[StepSample]) -> NDArray[np.float64]:
    predicted: NDArray[np.float64] = _features(samples) @ values
    return predicted


def _fit(samples: Sequence[StepSample]) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, float]]:
    """Coefficients and their standard errors, and the speeds of the runs."""
    runs = list(dict.fromkeys(sample.run for sample in samples))
    index = np.array([runs.index(sample.run) for sample in samples])
    features, measured, speeds = _features(samples), _measured(samples), np.ones(len(runs))
    for _ in range(ROUNDS if len(runs) > 1 else 1):
        values, deviations = _coefficients(features * speeds[index, None] / measured[:, None])
        ratio = measured / np.maximum(features @ values, 1e-300)
        speeds = np.array([np.median(ratio[index == run]) for run in range(len(runs))])
        speeds /= np.median(speeds)
    if len(runs) == 1:
        speeds[:] = 1.0
    return values, deviations, dict(zip(runs, speeds.tolist(), strict=True))


def _coefficients(relative: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For which the rows, features over seconds, sum to 1 each; and their standard errors."""
    from scipy.optimize import least_squares, nnls

    scale = np.where(relative.max(axis=0) > 0, relative.max(axis=0), 1.0)
    rows = relative / scale
    start, _ = nnls(rows, np.ones(len(rows)))
    found = least_squares(
        lambda values: rows @ values - 1, np.maximum(start, 1e-12), bounds=(0, np.inf), loss="soft_l1", f_scale=SOFT
    )
    spread = np.median(np.abs(found.fun)) * 1.4826
    free = found.x > 1e-9
    deviations = np.zeros(len(found.x))
    if free.any():
        covariance = np.linalg.pinv(rows[:, free].T @ rows[:, free])
        deviations[free] = spread * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return np.where(free, found.x, 0.0) / scale, deviations / scale


def as_document(fit: StepFit, source: str, server: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is written: the ``cost`` of a scenario, and what it was fitted on and how well."""
    cost = {"model": "linear", **{name: float(f"{getattr(fit.cost, name):.4g}") for name in COEFFICIENTS}}
    provenance: dict[str, Any] = {
        "source": source,
        "steps": fit.steps,
        "median_error": round(fit.error, 4),
        "p90_error": round(fit.p90_error, 4),
        "speeds": {run: round(speed, 3) for run, speed in fit.speeds.items()},
        "standard_errors": {name: float(f"{value:.2g}") for name, value in fit.standard_errors.items()},
        "left_out_runs": [
            {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(run).items()}
            for run in fit.runs
        ],
    }
    return {"cost": cost, "fit": provenance} | ({} if server is None else {"server": dict(server)})


def calibrate_steps(path: Path, clients: Sequence[Path] = ()) -> tuple[StepFit, dict[str, Any] | None]:
    """Read a log, fit it, and measure the server's own time where ``clients`` have what its clients saw."""
    from calibrate.server_time import server_time

    log = read_step_log(path)
    fit = fit_steps(samples_of(log))
    return fit, server_time(log, list(token_times(log)), clients) if clients else None
