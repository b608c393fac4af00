"""From a file to a validated scenario, with every problem at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim import resources
from sim.errors import Problem, ScenarioError
from sim.scenario.checks import check
from sim.scenario.document import Source, apply_override, copied, rename_aliases, split_path
from sim.scenario.explain import explain
from sim.scenario.refusals import refuse
from sim.scenario.specs import Scenario, Trace, TrafficSpec
from sim.scenario.speculation import rename_speculative
from sim.yaml12 import Document, read_yaml

IN_MEMORY = "<scenario>"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid scenario and where it came from."""

    spec: Scenario
    base_dir: Path
    """Where its relative paths start."""
    source: Source

    @property
    def file(self) -> str:
        """How errors name where it came from."""
        return self.source.file

    @property
    def data(self) -> dict[str, Any]:
        """The scenario as plain data, overrides applied."""
        return self.source.data

    def problem(self, path: str, problem: str, cure: str) -> Problem:
        """A problem found later, at a dotted key path, with its line."""
        return self.source.problem(split_path(path), problem, cure)


def load_scenario(
    scenario: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Loaded:
    """Read, override and validate a scenario: a path, the name of an example, or its content as a mapping.

    ``overrides`` maps dotted paths to values; ``seed`` goes before theirs and the file's. Raises ScenarioError with
    every problem, in the order of the file.
    """
    source, base_dir = _open(scenario)
    _drop_blank(source)
    problems = rename_aliases(source) + rename_speculative(source)
    for path, value in {**(overrides or {}), **({} if seed is None else {"seed": seed})}.items():
        problems += apply_override(source, path, copied(value))
    _drop_blank(source)
    problems += rename_aliases(source) + rename_speculative(source)
    problems += refuse(source)
    spec, invalid = _validate(source)
    known = {problem.path for problem in problems}
    problems += [problem for problem in [*invalid, *check(source, base_dir)] if problem.path not in known]
    if problems or spec is None:
        raise ScenarioError(sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))
    return Loaded(spec, base_dir, source)


def with_lenient_traces(loaded: Loaded) -> Loaded:
    """The same, but that lines of traces which cannot be read are skipped and counted. Raises ScenarioError where the
    load is no trace.
    """
    traffic = loaded.spec.traffic
    lenient = _lenient(traffic)
    if lenient == traffic and not any(isinstance(each, Trace) for each in _arrivals(traffic)):
        raise ScenarioError([loaded.problem("traffic.arrivals", "--lenient: the load is no trace", "leave it out")])
    return replace(loaded, spec=loaded.spec.model_copy(update={"traffic": lenient}))


def _arrivals(traffic: TrafficSpec) -> list[object]:
    return [traffic.arrivals, *(each.arrivals for each in (traffic.classes or {}).values())]


def _lenient(traffic: TrafficSpec) -> TrafficSpec:
    def changed(arrivals: Any) -> Any:
        return arrivals.model_copy(update={"lenient": True}) if isinstance(arrivals, Trace) else arrivals

    classes = traffic.classes and {
        name: each.model_copy(update={"arrivals": changed(each.arrivals)}) for name, each in traffic.classes.items()
    }
    return traffic.model_copy(update={"arrivals": changed(traffic.arrivals), "classes": classes})


def _validate(source: Source) -> tuple[Scenario | None, list[Problem]]:
    try:
        return Scenario.model_validate(source.data), []
    except ValidationError as error:
        return None, explain(error, source)


def _drop_blank(source: Source) -> None:
    """A section of which nothing but its name is there (all its keys are comments) has its defaults."""
    for name, field in Scenario.model_fields.items():
        if not field.is_required() and name in source.data and source.data[name] is None:
            del source.data[name]


def _open(scenario: str | Path | Mapping[str, Any]) -> tuple[Source, Path]:
    if isinstance(scenario, Mapping):
        return Source(IN_MEMORY, Document(None, {}), _plain(scenario)), Path.cwd()
    path = resources.find("workloads", str(scenario))
    if path is None:
        known = ", ".join(resources.names("workloads"))
        problem = "is a folder" if os.path.isdir(scenario) else "no such file"  # noqa: PTH112 - never raises
        raise ScenarioError(
            [Problem(str(scenario), None, "", problem, f"name a scenario file, or an example: {known}")]
        )
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "holds no keys with values"
        raise ScenarioError([Problem(str(path), None, "", what, "start from the file that `sim init` writes")])
    return Source(str(path), document, copied(document.data)), path.parent


def _plain(scenario: Mapping[str, Any]) -> dict[Any, Any]:
    try:
        return dict(copied(scenario))
    except RecursionError:
        problem = Problem(IN_MEMORY, None, "", "is nested without end", "give plain keys and values")
        raise ScenarioError([problem]) from None
