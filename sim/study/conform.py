"""Many recorded engine traces and live step logs against the scheduler, and the loop, that ``sim run`` uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.engine.conform import Difference, replay_file
from sim.engine.trace_checks import UnsupportedTrace
from sim.errors import RidgelineError
from sim.fleet.step_log import is_step_log, read_step_log
from sim.fleet.step_replay import replay_log

EQUAL, DIFFERENT, UNREADABLE = 0, 1, 2
Verdict = Difference | UnsupportedTrace | None
"""None: every recorded field of every step is equal."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """The verdict of each file."""

    files: tuple[tuple[Path, Verdict], ...]
    assumed: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    """What a step log does not say."""

    @property
    def status(self) -> int:
        """0 all equal, 1 a difference, 2 a file that cannot be replayed (which goes before a difference)."""
        if any(isinstance(verdict, UnsupportedTrace) for _, verdict in self.files):
            return UNREADABLE
        return DIFFERENT if any(verdict is not None for _, verdict in self.files) else EQUAL

    def lines(self) -> list[str]:
        """A line per file, with what was assumed of it, and a count."""
        said: list[str] = []
        for path, verdict in self.files:
            said.append(_said(path, verdict))
            said += [
                f"  assumed: {name} {value}, which the log does not say" for name, value in self._assumed(path).items()
            ]
        return [*said, f"{sum(verdict is None for _, verdict in self.files)} of {len(self.files)} equal"]

    def as_json(self) -> dict[str, Any]:
        """``{"equal": n, "files": [{"file", "status", ...}]}``; a difference has step, field, recorded and replayed.

        What was assumed of a step log is in its ``assumed``.
        """
        return {
            "equal": sum(verdict is None for _, verdict in self.files),
            "files": [
                {"file": str(path), **_entry(verdict), **self._assumed_entry(path)} for path, verdict in self.files
            ],
        }

    def _assumed(self, path: Path) -> Mapping[str, str]:
        return self.assumed.get(path, {})

    def _assumed_entry(self, path: Path) -> dict[str, Any]:
        return {"assumed": dict(self._assumed(path))} if self._assumed(path) else {}


def conform(paths: Sequence[Path]) -> Conformance:
    """Replay files, and all of folders that are called .json or .jsonl: none is skipped in silence, so one that is
    neither trace nor log has the status of a file that cannot be replayed. Raises RidgelineError where there is none.
    """
    files = [file for path in paths for file in (_files(path) if path.is_dir() else [path])]
    if not files:
        raise RidgelineError("no trace is in these folders\n  cure: name .json or .jsonl files of recorded steps")
    assumed: dict[Path, Mapping[str, str]] = {}
    return Conformance(tuple((file, _verdict(file, assumed)) for file in files), assumed)


def _files(folder: Path) -> list[Path]:
    """Files, and links that lead nowhere; not folders that are called so, nor pipes, which would be waited for."""
    named = (file for file in folder.rglob("*") if file.suffix.lower() in {".json", ".jsonl"})
    return sorted(file for file in named if file.is_file() or not file.exists())


def _verdict(file: Path, assumed: dict[Path, Mapping[str, str]]) -> Verdict:
    """A file is a step log by what is in it, not by its name."""
    try:
        if not is_step_log(file):
            return replay_file(file)
        log = read_step_log(file)
        assumed[file] = log.assumed
        return replay_log(log)
    except UnsupportedTrace as error:
        return error


def _said(path: Path, verdict: Verdict) -> str:
    if verdict is None:
        return f"{path}: equal"
    if isinstance(verdict, UnsupportedTrace):
        return str(verdict)
    shown = f"recorded {verdict.recorded}, replayed {verdict.replayed}"
    return f"{path}: step {verdict.step}: {verdict.field}: {shown}"


def _entry(verdict: Verdict) -> dict[str, Any]:
    if verdict is None:
        return {"status": "equal"}
    if isinstance(verdict, UnsupportedTrace):
        return {"status": "unreadable", "reason": str(verdict)}
    return {"status": "different", **verdict._asdict()}
