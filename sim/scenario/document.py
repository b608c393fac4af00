"""A scenario's data with the place of every key, through aliases and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.errors import Problem
from sim.scenario.keys import ALIASES, NEGATED
from sim.yaml12 import MAX_DEPTH, Document, parse_scalar

Path = tuple[str | int, ...]
SET = "--set"


def dotted(path: Path) -> str:
    """``("a", 0, "b")`` as ``a[0].b``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(slots=True)
class Source:
    """Plain data under the names of the specs, and where the user wrote each key."""

    file: str
    document: Document
    data: dict[str, Any]
    written: dict[Path, Path] = field(default_factory=dict)
    """Own name -> the alias it was written under."""
    overridden: set[Path] = field(default_factory=set)

    def problem(self, path: Path, problem: str, cure: str) -> Problem:
        """A problem at a key, with the file (or ``--set``) and line where it was written."""
        if any(path[: len(over)] == over for over in self.overridden):
            return Problem(SET, None, dotted(path), problem, cure)
        shown = self._as_written(path)
        return Problem(self.file, self.document.line(shown), dotted(shown), problem, cure)

    def _as_written(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            if path[:length] in self.written:
                return self.written[path[:length]] + path[length:]
        return path


def split_path(text: str) -> Path:
    """``a.b.0`` as a path; whole numbers are indices."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split("."))


def rename_aliases(source: Source) -> list[Problem]:
    """Put every alias under its own name; both at once is a problem."""
    problems: list[Problem] = []
    for section in ("engine", "deployment"):
        content = source.data.get(section)
        if not isinstance(content, dict):
            continue
        for key in list(content):
            name = str(key).replace("-", "_")
            target = ALIASES.get(name)
            if target is None:
                continue
            room, own = target.split(".")
            if not isinstance(source.data.setdefault(room, {}), dict):
                continue
            if own in source.data[room]:
                problems.append(source.problem((section, key), f"says the same as {target}", "keep one of the two"))
                continue
            value = content.pop(key)
            if name in NEGATED and isinstance(value, bool):
                value = not value
            source.data[room][own] = value
            source.written[(room, own)] = (section, key)
            if (section, key) in source.overridden:
                source.overridden.add((room, own))
    return problems


def apply_override(source: Source, text: str, value: Any) -> list[Problem]:
    """Set one dotted path, making the mappings on the way; an alias takes the place of its own name."""
    path = split_path(text)
    own = ALIASES.get(str(path[-1]).replace("-", "_")) if len(path) == 2 else None
    if own is not None:
        room, name = own.split(".")
        section = source.data.get(room)
        if isinstance(section, dict):
            section.pop(name, None)
    if len(path) > MAX_DEPTH or not all(path) and 0 not in path:
        return [Problem(SET, None, text, "is not a path of keys", "write it as traffic.arrivals.rate")]
    node: Any = source.data
    for index, part in enumerate(path):
        last = index == len(path) - 1
        if isinstance(node, list) and isinstance(part, int) and part < len(node):
            if last:
                node[part] = value
            node = node[part]
        elif isinstance(node, dict):
            if last:
                node[part] = value
            else:
                node = node.setdefault(part, {})
        else:
            return [
                Problem(SET, None, text, f"{dotted(path[:index])} holds no keys in the scenario", "set that key as a whole")
            ]
    source.overridden.add(path)
    return []


def parse_set(text: str) -> tuple[str, Any]:
    """``path=value`` with the value as YAML; a version stays a text. Raises ScenarioError."""
    from sim.errors import ScenarioError

    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ScenarioError([Problem(SET, None, "", f"{text!r} is not PATH=VALUE", "write --set traffic.arrivals.rate=12")])
    return path.strip(), parse_value(path.strip(), value)


def parse_value(path: str, text: str) -> Any:
    """One value of a ``--set`` or ``--grid``."""
    value = parse_scalar(text, f"{SET} {path}")
    return text.strip() if path.endswith("engine.version") and not isinstance(value, str) else value


def copied(value: Any) -> Any:
    """A deep copy of plain data."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copied(item) for item in value]
    return value
