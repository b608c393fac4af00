"""Many recorded engine traces against the scheduler that ``sim run`` uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.engine.conform import Difference, UnsupportedTrace, replay_file
from sim.errors import RidgelineError

EQUAL, DIFFERENT, UNREADABLE = 0, 1, 2
Verdict = Difference | UnsupportedTrace | None
"""None: every recorded field of every step is equal."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """The verdict of each file."""

    files: tuple[tuple[Path, Verdict], ...]

    @property
    def status(self) -> int:
        """0 all equal, 1 a difference, 2 a file that cannot be replayed (which goes before a difference)."""
        if any(isinstance(verdict, UnsupportedTrace) for _, verdict in self.files):
            return UNREADABLE
        return DIFFERENT if any(verdict is not None for _, verdict in self.files) else EQUAL

    def lines(self) -> list[str]:
        """A line per file, and a count."""
        equal = sum(verdict is None for _, verdict in self.files)
        return [*(_said(path, verdict) for path, verdict in self.files), f"{equal} of {len(self.files)} equal"]

    def as_json(self) -> dict[str, Any]:
        """``{"equal": n, "files": [{"file", "status", ...}]}``; a difference has step, field, recorded and replayed."""
        return {
            "equal": sum(verdict is None for _, verdict in self.files),
            "files": [{"file": str(path), **_entry(verdict)} for path, verdict in self.files],
        }


def conform(paths: Sequence[Path]) -> Conformance:
    """Replay files, and every .json file of folders. Raises RidgelineError where there is none."""
    files = [file for path in paths for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise RidgelineError("no trace is in these folders\n  cure: name .json files of recorded steps")
    return Conformance(tuple((file, _verdict(file)) for file in files))


def _verdict(file: Path) -> Verdict:
    try:
        return replay_file(file)
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
