"""From a file to a validated scenario, with every problem at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim import resources
from sim.errors import Problem, ScenarioError
from sim.scenario.checks import check
from sim.scenario.document import Source, apply_override, copied, rename_aliases, split_path
from sim.scenario.explain import explain
from sim.scenario.refusals import refuse
from sim.scenario.specs import Scenario
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

    ``overrides`` maps dotted paths to values. Raises ScenarioError with every problem, in the order of the file.
    """
    source, base_dir = _open(scenario)
    problems = rename_aliases(source)
    for path, value in (overrides or {}).items():
        problems += apply_override(source, path, copied(value))
    problems += rename_aliases(source)
    if seed is not None:
        problems += apply_override(source, "seed", seed)
    problems += refuse(source)
    spec = None
    try:
        spec = Scenario.model_validate(source.data)
    except ValidationError as error:
        known = {problem.path for problem in problems}
        problems += [problem for problem in explain(error, source) if problem.path not in known]
    if spec is not None and not problems:
        problems += check(spec, source, base_dir)
    if problems or spec is None:
        raise ScenarioError(sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))
    return Loaded(spec, base_dir, source)


def _open(scenario: str | Path | Mapping[str, Any]) -> tuple[Source, Path]:
    if isinstance(scenario, Mapping):
        return Source(IN_MEMORY, Document(None, {}), copied(scenario)), Path.cwd()
    path = resources.find("workloads", str(scenario))
    if path is None:
        known = ", ".join(resources.names("workloads"))
        raise ScenarioError(
            [Problem(str(scenario), None, "", "no such file", f"name a scenario file, or an example: {known}")]
        )
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else f"holds a {type(document.data).__name__}, not keys and values"
        raise ScenarioError([Problem(str(path), None, "", what, "start from the file that `sim init` writes")])
    return Source(str(path), document, copied(document.data)), path.parent


