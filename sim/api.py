"""The Python face of the commands: load, run, sweep, validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sim.results.result import Result
from sim.scenario import Loaded, load_scenario
from sim.study.sweep import sweep
from sim.study.validation import Validation, replay, validate

__all__ = ["Loaded", "Result", "Validation", "load", "replay", "run", "sweep", "validate"]


def load(
    scenario: str | Path | Mapping[str, Any], *, overrides: Mapping[str, Any] | None = None, seed: int | None = None
) -> Loaded:
    """Read and validate a scenario without running it.

    ``scenario``: a path, the name of an example, or the YAML's content as a mapping. ``overrides``: dotted paths to
    values. Raises ScenarioError with every problem at once.
    """
    return load_scenario(scenario, overrides=overrides, seed=seed)


def run(
    scenario: str | Path | Mapping[str, Any] | Loaded,
    *,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    progress: Callable[[int, float], None] | None = None,
    streams: bool = False,
) -> Result:
    """Simulate a scenario: ``sim.run("workloads/chat.yaml", overrides={"traffic.arrivals.rate": 12})``.

    ``streams``: keep when each chunk of each answer came, for ``Result.export``. Ctrl-C ends the run and returns what
    was simulated, marked ``summary["partial"]``. Raises ScenarioError or DoesNotFit before anything is simulated.
    """
    from sim.fleet import simulate

    loaded = scenario if isinstance(scenario, Loaded) else load(scenario, overrides=overrides, seed=seed)
    return Result(simulate(loaded, progress, streams=streams))
