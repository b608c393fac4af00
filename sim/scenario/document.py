"""A scenario's data with the place of every key, through aliases and overrides."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim import resources
from sim.errors import Problem, ScenarioError
from sim.scenario.keys import ALIASES, NEGATED
from sim.scenario.specs import DeploymentSpec, EngineSpec, Spec
from sim.yaml12 import MAX_DEPTH, Document, parse_scalar

Path = tuple[str | int, ...]
SET = "--set"
FLAGGED: dict[str, type[Spec]] = {"engine": EngineSpec, "deployment": DeploymentSpec}
"""Sections whose keys may be written as an engine's flags."""
LENGTHS = {
    ("traffic", "prompt_tokens"),
    ("traffic", "output_tokens"),
    ("traffic", "sessions", "turns"),
    ("traffic", "sessions", "first_prompt_tokens"),
    ("traffic", "sessions", "tool_calls", "tokens"),
    ("traffic", "sessions", "fan_out", "branches"),
    ("traffic", "sessions", "fan_out", "turns"),
}


def dotted(path: Path) -> str:
    """``("a", 0, "b")`` as ``a.0.b``: what ``--set`` takes; keys that would break a line are quoted and cut."""
    parts = [str(part) for part in path]
    return ".".join(part if part.isprintable() and len(part) <= 80 else f"{part[:60]!r}..." for part in parts)


def child_at(node: Any, part: str | int) -> bool:
    """Whether a mapping or a list has something at ``part``."""
    if isinstance(node, list):
        return isinstance(part, int) and part < len(node)
    return isinstance(node, dict) and part in node


@dataclass(slots=True)
class Source:
    """Plain data under the names of the specs, and where the user wrote each key."""

    file: str
    document: Document
    data: dict[Any, Any]
    written: dict[Path, Path] = field(default_factory=dict)
    """Own name -> the alias it was written under."""
    overridden: set[Path] = field(default_factory=set)

    def problem(self, path: Path, problem: str, cure: str) -> Problem:
        """A problem at a key, with the file (or ``--set``) and line where it was written."""
        shown = self._as_written(path)
        if self.is_set(path):
            return Problem(SET, None, dotted(shown), problem, cure)
        return Problem(self.file, self.document.line(shown), dotted(shown), problem, cure)

    def get(self, path: Path) -> Any:
        """The value at a path; None where there is none."""
        node: Any = self.data
        for part in path:
            if not child_at(node, part):
                return None
            node = node[part]
        return node

    def is_set(self, path: Path) -> bool:
        """Whether an override wrote this key, or made the mapping it is in."""
        if any(path[: len(over)] == over for over in self.overridden):
            return True
        made = any(over[: len(path)] == path for over in self.overridden)
        return made and self._as_written(path) not in self.document.lines

    def _as_written(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            if path[:length] in self.written:
                return self.written[path[:length]] + path[length:]
        return path


def split_path(text: str) -> Path:
    """``a.b.0`` or ``a.b[0]`` as a path; whole numbers are indices."""
    return tuple(_part(part) for part in re.sub(r"\[(\d+)\]", r".\1", text).split("."))


def _part(text: str) -> str | int:
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else text


def own_path(path: Path) -> Path:
    """The path under its own name, if it ends in an alias or in a dashed spelling."""
    if len(path) != 2 or path[0] not in FLAGGED or not isinstance(path[1], str):
        return path
    name = path[1].replace("-", "_")
    if name in ALIASES:
        return split_path(ALIASES[name])
    return (path[0], name) if name in FLAGGED[str(path[0])].model_fields else path


def rename_aliases(source: Source) -> list[Problem]:
    """Put every alias under its own name; both at once is a problem."""
    problems: list[Problem] = []
    for section in FLAGGED:
        content = source.data.get(section)
        if not isinstance(content, dict):
            continue
        for key in list(content):
            written = (section, key)
            own = own_path(written)
            if own == written:
                continue
            value = content.pop(key)
            room = source.data.setdefault(own[0], {})
            if isinstance(room, dict) and own[1] in room:
                first = dotted(source.written.get(own, own))
                problems.append(source.problem(written, f"says the same as {first}", "keep one of the two"))
            elif isinstance(room, dict):
                room[own[1]] = _negated(written, value)
                source.written[own] = written
                if source.is_set(written):
                    source.overridden.add(own)
    return problems


def _negated(written: Path, value: Any) -> Any:
    opposite = str(written[-1]).replace("-", "_") in NEGATED
    return not value if opposite and isinstance(value, bool) else value


FILES = {("model",), ("hardware",), ("hardware", "profile"), ("engine", "speculative", "draft_model")}
"""Keys that may name a file, besides those called ``path``."""


def from_here(path: Path, value: Any) -> Any:
    """An override is written where the user stands: relative files that are there are made absolute."""
    if isinstance(value, dict):
        return {key: from_here((*path, key), item) for key, item in value.items()}
    if isinstance(value, str) and (path[-1] == "path" or path in FILES) and "/" not in value[:1]:
        here = resources.locate(value, pathlib.Path.cwd())
        return value if here is None else str(here)
    return value


def apply_override(source: Source, text: str, value: Any) -> list[Problem]:
    """Set one dotted path, making the mappings on the way; an alias sets its own name."""
    written = split_path(str(text))
    if len(written) > MAX_DEPTH or "" in written:
        return [Problem(SET, None, dotted(written), "is not a path of keys", "write it as traffic.arrivals.rate")]
    path = own_path(written)
    if path in source.overridden:
        return [Problem(SET, None, dotted(written), "is set twice", "set it once")]
    node: Any = source.data
    for index, part in enumerate(path[:-1]):
        node = _below(node, part, path[: index + 1])
        if node is None:
            return [_holds_no_keys(path[: index + 1])]
    if isinstance(node, list) and not child_at(node, path[-1]):
        return [_holds_no_keys(path[:-1])]
    node[path[-1]] = _negated(written, from_here(path, value))
    source.written.pop(path, None)
    if written != path:
        source.written[path] = written
    source.overridden.add(path)
    return []


def _below(node: Any, part: str | int, path: Path) -> dict[Any, Any] | list[Any] | None:
    """What is at ``part`` of ``node``: there, made, or written out from its short form; None if it holds no keys."""
    if isinstance(node, dict) and node.get(part) is None:
        node[part] = {}
    if not child_at(node, part):
        return None
    if path == ("hardware",) and isinstance(node[part], str):
        node[part] = {"profile": node[part]}
    elif path in LENGTHS and type(node[part]) is int:
        node[part] = {"distribution": "fixed", "value": node[part]}
    return node[part] if isinstance(node[part], dict | list) else None


def _holds_no_keys(path: Path) -> Problem:
    return Problem(SET, None, dotted(path), "holds no keys in the scenario", "set it as a whole, with {key: value}")


def parse_set(text: str) -> tuple[str, Any]:
    """``path=value`` with the value as YAML; a version stays a text. Raises ScenarioError."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ScenarioError(
            [Problem(SET, None, "", f"{text!r} is not PATH=VALUE", "write --set traffic.arrivals.rate=12")]
        )
    return path.strip(), parse_value(path.strip(), value)


def parse_value(path: str, text: str, flag: str = SET) -> Any:
    """One value of a ``--set`` or ``--grid``."""
    value = parse_scalar(text, f"{flag} {path}")
    is_version = path.endswith("engine.version") and isinstance(value, int | float)
    return text.strip() if is_version else value


def copied(value: Any) -> Any:
    """A deep copy of plain data: tuples become lists, paths texts, and numpy's scalars Python's."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copied(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return (
        value.item()
        if hasattr(value, "dtype") and hasattr(value, "item") and not getattr(value, "shape", ())
        else value
    )
