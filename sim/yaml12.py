"""YAML by the 1.2 core rules: `3.35e12` is a number, `yes` and `1:30` are text.

Safe, with the line of every key; a key that is there twice is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sim.errors import Problem, ScenarioError

CORE = (
    ("null", r"|~|null|Null|NULL", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)


MAX_BYTES = 2**20
MAX_DEPTH = 32
MAX_NODES = 50_000
"""Of a document with its aliases written out: more is an attack or an accident."""
MOST_DIGITS = 400
"""Of a whole number: more is beyond what a float can hold."""


class Document(NamedTuple):
    """A parsed file: plain data, and where each key stands."""

    data: Any
    lines: dict[tuple[str | int, ...], int]

    def line(self, path: Sequence[str | int]) -> int | None:
        """1-based line of the deepest part of ``path`` that the file has; None for the whole file."""
        keys = tuple(path)
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema's scalars."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way to say "none of the parent's"

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Stop at once where a document is too deep or too long, before Python does."""
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH or self._nodes > MAX_NODES:
            problem = (
                f"more than {MAX_DEPTH} levels deep" if self._depth > MAX_DEPTH else f"more than {MAX_NODES:,} values"
            )
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self._here())
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _here(self) -> Any:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        return event.start_mark


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    if len(text) > MOST_DIGITS:
        raise yaml.MarkedYAMLError(problem=f"a number of {len(text):,} digits", problem_mark=node.start_mark)
    return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)


def _floating(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)).lower().replace(".inf", "inf").replace(".nan", "nan"))


for _tag, _pattern, _first in CORE:
    _characters = [*_first, ""] if _tag == "null" else list(_first)
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _characters)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _floating)


def is_plain_text(text: str) -> bool:
    """Whether unquoted ``text`` reads as text, not as a number, a flag or nothing."""
    return bool(text) and not any(re.fullmatch(pattern, text) for _, pattern, _ in CORE)


def read_yaml(path: Path) -> Document:
    """The document in ``path``. Raises ScenarioError where it cannot be read, is too large, or says a key twice."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ScenarioError(
                [Problem(str(path), None, "", "is larger than 1 MiB", "name a YAML file written by hand")]
            )
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ScenarioError(
            [Problem(str(path), None, "", f"cannot be read: {reason}", "name a readable text file")]
        ) from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Document:
    """The document in ``text``; ``file`` names it in errors. Raises ScenarioError."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[tuple[str | int, ...], int] = {}
        twice: list[Problem] = []
        if node is not None:
            _bounded(node, file)
            _walk(node, (), lines, twice, file)
        if twice:
            raise ScenarioError(twice)
        return Document(None if node is None else loader.construct_document(node), lines)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise ScenarioError([_syntax_problem(error, text, file)]) from error
    finally:
        if loader is not None:
            loader.dispose()


def _syntax_problem(error: Exception, text: str, file: str) -> Problem:
    """What PyYAML objects to, in one line, and where."""
    mark = getattr(error, "problem_mark", None)
    line = None if mark is None else mark.line + 1
    problem = getattr(error, "problem", None) or str(error)
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character {ord(error.character) if isinstance(error.character, str) else error.character:#06x}"
    if isinstance(error, yaml.constructor.ConstructorError) and "tag" in problem:
        return Problem(file, line, "", f"tags are refused: {problem}", "write plain texts, numbers, lists and mappings")
    return Problem(file, line, "", f"not YAML: {' '.join(str(problem).split())}", "mend the syntax there")


def parse_scalar(text: str, where: str) -> Any:
    """One value given outside a file, such as on a command line; it may be a flow mapping or sequence."""
    return parse_yaml(text, where).data


def _bounded(root: yaml.Node, file: str) -> None:
    """Refuse documents whose aliases, written out, are huge or circular (a billion laughs)."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: yaml.Node, depth: int) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_ or depth > MAX_DEPTH:
            raise ScenarioError(
                [Problem(file, node.start_mark.line + 1, "", "is nested without end", "write it out without aliases")]
            )
        open_.add(id(node))
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        total = 1 + sum(size(child, depth + 1) for child in children)
        open_.discard(id(node))
        sizes[id(node)] = total
        if total > MAX_NODES:
            problem = f"holds more than {MAX_NODES:,} values once its aliases are written out"
            raise ScenarioError(
                [Problem(file, node.start_mark.line + 1, "", problem, "write plain values instead of nested aliases")]
            )
        return total

    size(root, 0)


def _walk(
    node: yaml.Node,
    path: tuple[str | int, ...],
    lines: dict[tuple[str | int, ...], int],
    twice: list[Problem],
    file: str,
) -> None:
    """Note the line of every key below ``node``, and every key that is there twice."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str | int, int] = {}
        for key_node, value_node in node.value:
            key: str | int = key_node.value if isinstance(key_node.value, str) else "?"
            if key_node.tag.endswith(":int") and str(key).isdecimal():
                key = int(key)
            line = key_node.start_mark.line + 1
            if key in seen:
                where = ".".join(str(part) for part in (*path, key))
                twice.append(Problem(file, line, where, f"the key is already on line {seen[key]}", "keep one of them"))
            seen.setdefault(key, line)
            lines[(*path, key)] = line
            _walk(value_node, (*path, key), lines, twice, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value_node in enumerate(node.value):
            lines[(*path, index)] = value_node.start_mark.line + 1
            _walk(value_node, (*path, index), lines, twice, file)
