"""Finished points on disk as they come, so that a killed sweep loses none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sim.errors import RidgelineError


class Journal:
    """``<out>.partial``: a header line, then one JSON line per finished point.

    A line is written whole and flushed before the next point counts as done; a torn last line is ignored.
    """

    def __init__(self, out: Path, fingerprint: str, *, resume: bool) -> None:
        self.path = out.with_name(out.name + ".partial")
        self.rows: dict[str, dict[str, Any]] = {}
        self._header = {"sweep": fingerprint}
        if resume and self.path.is_file():
            self._read()
        else:
            self._refuse_to_overwrite(resume)
            self.path.write_text(json.dumps(self._header) + "\n", encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")

    def add(self, key: str, row: dict[str, Any]) -> None:
        """A point is finished."""
        self.rows[key] = row
        self._file.write(json.dumps({"key": key, "row": row}) + "\n")
        self._file.flush()

    def close(self, *, remove: bool) -> None:
        self._file.close()
        if remove:
            self.path.unlink(missing_ok=True)

    def _refuse_to_overwrite(self, resume: bool) -> None:
        if not resume and self.path.exists():
            raise RidgelineError(
                f"{self.path}: an unfinished sweep is here\n  cure: add --resume to go on with it, or delete the file"
            )

    def _read(self) -> None:
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if not lines or _parsed(lines[0]) != self._header:
            raise RidgelineError(
                f"{self.path}: this unfinished sweep is of another scenario, grid or version\n"
                "  cure: run it with what it was started with, choose another --out, or delete the file"
            )
        whole = [line for line in lines if line.endswith("\n")]
        for line in whole[1:]:
            entry = _parsed(line)
            if not isinstance(entry, dict) or not {"key", "row"} <= set(entry):
                raise RidgelineError(f"{self.path}: is damaged\n  cure: delete it and start the sweep anew")
            self.rows[entry["key"]] = entry["row"]
        self.path.write_text("".join(whole), encoding="utf-8")


def _parsed(line: str) -> Any:
    """A line as JSON; None where it is none."""
    try:
        return json.loads(line)
    except ValueError:
        return None
