"""The errors a user may meet.

RidgelineError
├── ScenarioError     what the user wrote is wrong: every problem with file, line, path and cure
├── DoesNotFit        the deployment cannot hold the model or a request
├── UnsupportedModel  a config.json this version cannot read exactly
└── TraceError        an unreadable line of a trace file
"""

from __future__ import annotations

from dataclasses import dataclass


class RidgelineError(Exception):
    """Base of every error with a message meant for the user. The commands print it and exit with status 2."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with what the user wrote.

    ``file`` is a path or a flag such as ``--set``; ``line`` is 1-based, None where a file has none; ``path`` is the
    dotted key path ("" for the whole file); ``cure`` says how to mend it.
    """

    file: str
    line: int | None
    path: str
    problem: str
    cure: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        path = f" {self.path}:" if self.path else ""
        return f"{place}:{path} {self.problem}\n  cure: {self.cure}"


class ScenarioError(RidgelineError):
    """All problems of a scenario at once, in the order of the file."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class DoesNotFit(RidgelineError):
    """The model or a request needs more memory than there is; ``problem`` has the numbers, ``cure`` the way out."""

    def __init__(self, problem: str, cure: str) -> None:
        self.problem = problem
        self.cure = cure
        super().__init__(f"{problem}\n  cure: {cure}")


class UnsupportedModel(RidgelineError):
    """A model configuration that cannot be read exactly; ``problem`` says what is missing, ``cure`` what to do."""

    def __init__(self, problem: str, cure: str) -> None:
        self.problem = problem
        self.cure = cure
        super().__init__(f"{problem}\n  cure: {cure}")


class TraceError(RidgelineError):
    """A trace line that cannot be read."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))
