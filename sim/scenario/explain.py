"""Pydantic's errors in the user's words: the key as written, the problem with its value, and a cure."""

from __future__ import annotations

import re
import typing
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sim.errors import Problem
from sim.scenario.document import FLAGGED, Path, Source, child_at
from sim.scenario.keys import ALIASES
from sim.scenario.quantities import UnfitError, shown
from sim.scenario.specs import Scenario, Spec

MOST_PROBLEMS = 200
TAGS = ("process", "distribution", "model")
"""Keys that say which of several specs a mapping is."""
SPELLINGS = {
    "None": ("null", "~", "Null", "NULL", ""),
    "True": ("true", "True", "TRUE"),
    "False": ("false", "False", "FALSE"),
}
EXAMPLES = {
    "process": "{process: poisson, rate: 8}",
    "distribution": "512, or {distribution: lognormal, mean: 512, p99: 4000}",
    "model": "{model: roofline}",
}
SHORT = {
    "normal": ("a whole number", EXAMPLES["distribution"]),
    "exponential": ("a time", "10 s, or {distribution: exponential, mean: 10 s}"),
    "zipf": ("a name", "uniform, or {distribution: zipf, alpha: 1}"),
}
"""By one of a distribution's choices: what may stand in its place, and an example."""
SCHEMA = "`sim schema` says what this key takes"
SAID = {
    "greater_than": ("is not above {gt:,}", "give more than {gt:,}"),
    "greater_than_equal": ("is less than {ge:,}", "give {ge:,} or more"),
    "less_than": ("is not below {lt:,}", "give less than {lt:,}"),
    "less_than_equal": ("is more than {le:,}", "give {le:,} or less"),
    "string_type": ("is not a text", "give a name"),
}
"""Problem and cure by kind of error."""


def explain(error: ValidationError, source: Source) -> list[Problem]:
    """One problem per error, each at its own key; after the first 200 only how many more there are."""
    details = error.errors(include_url=False)
    problems = [_explain(detail, source) for detail in details[:MOST_PROBLEMS]]
    if len(details) > MOST_PROBLEMS:
        more = f"{len(details) - MOST_PROBLEMS:,} more problems"
        problems.append(Problem(source.file, None, "", more, "mend the first ones and try again"))
    return problems


def _explain(detail: ErrorDetails, source: Source) -> Problem:
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    path = key_path(detail["loc"], source.data, keep_last=kind in {"missing", "extra_forbidden"})
    if kind == "extra_forbidden":
        return source.problem(path, "unknown key", _unknown_key(path, source.data))
    if kind == "invalid_key":
        parent = key_path(detail["loc"][:-1], source.data, keep_last=False)
        path = (*parent, _spelled(value, parent, source))
        return source.problem(path, "unknown key", _unknown_key(path, source.data))
    if kind == "missing":
        return source.problem(path, "is required and missing", f"add {path[-1]}; `sim init` writes an example")
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'|([0-9]+)", str(context["expected"]))
        return source.problem(path, *_choice(value, ["".join(choice) for choice in choices]))
    if kind in {"union_tag_invalid", "union_tag_not_found", "model_attributes_type"}:
        return _explain_union(path, source)
    if kind in {"model_type", "dict_type"}:
        return source.problem(path, f"{shown(value)} is not keys with values", f"give {{key: value}}; {SCHEMA}")
    error = context.get("error")
    if isinstance(error, UnfitError):
        return source.problem(path, error.problem, error.cure)
    said, cure = SAID.get(kind, (detail["msg"].lower(), SCHEMA))
    bounds = {name: _number(bound) for name, bound in context.items()}
    return source.problem(path, f"{shown(_number(value))} {said.format(**bounds)}", cure.format(**bounds))


def _number(value: Any) -> Any:
    """8.0 as 8: as the user wrote it."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def _explain_union(path: Path, source: Source) -> Problem:
    """A mapping that does not say which of several specs it is, or something else in its place."""
    specs = specs_at(path, source.data)
    tag = next(name for name in TAGS if name in specs[0].model_fields)
    choices = {typing.get_args(spec.model_fields[tag].annotation)[0]: spec for spec in specs}
    value = source.get(path)
    if not isinstance(value, dict):
        what, example = next((SHORT[choice] for choice in choices if choice in SHORT), ("", EXAMPLES[tag]))
        cure = f"write {{{tag}: {value}, ...}}" if value in [*choices] else f"write {example}"
        return source.problem(path, f"{shown(value)} is not {what}{', or ' * bool(what)}keys with values", cure)
    if tag in value:
        return source.problem((*path, tag), *_choice(value[tag], [*choices]))
    fits = [choice for choice, spec in choices.items() if _could_be(spec, value, tag)]
    cure = f"add {tag}: {fits[0]}" if len(fits) == 1 else f"add {tag}: one of {', '.join(fits or choices)}"
    return source.problem(path, f"says no {tag}", cure)


def _could_be(spec: type[Spec], data: dict[Any, Any], tag: str) -> bool:
    required = {name for name, field in spec.model_fields.items() if field.is_required()}
    return bool(data) and required - {tag} <= data.keys() <= spec.model_fields.keys()


def _choice(value: Any, choices: list[Any]) -> tuple[str, str]:
    known = [str(choice) for choice in choices]
    return f"{shown(value)} is not one of the choices", _nearest(str(value), known, "known here")


def _unknown_key(path: Path, data: Any) -> str:
    specs = specs_at(path[:-1], data)
    own = [*dict.fromkeys(name for spec in specs for name in spec.model_fields)]
    flags = [*ALIASES] if len(path) == 2 and path[0] in FLAGGED else []
    cure = _nearest(str(path[-1]), own, "", flags)
    tag = _tag(specs[0]) if len(specs) == 1 else None
    if tag is not None:
        chosen = typing.get_args(specs[0].model_fields[tag].annotation)[0]
        takes = ", ".join(name for name in own if name != tag)
        return f"{cure} " * bool(cure) + f"{tag}: {chosen} takes {takes}"
    if cure:
        return cure
    for section, field in Scenario.model_fields.items():
        if any(path[-1] in spec.model_fields for spec in specs_in(field.annotation)) and section != path[0]:
            return f"did you mean {section}.{path[-1]}?"
    return "known here: " + ", ".join(own)


def _tag(spec: type[Spec]) -> str | None:
    """The key whose one value says that a mapping is ``spec``."""
    for name in TAGS:
        field = spec.model_fields.get(name)
        if field is not None and typing.get_origin(field.annotation) is typing.Literal:
            return name
    return None


def _nearest(word: str, known: list[str], otherwise: str, also: list[str] | None = None) -> str:
    """The nearest known word, whatever its case and dashes, or what is known."""
    folded = {name.lower().replace("-", "_"): name for name in [*(also or []), *known]}
    close = get_close_matches(word[:80].lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]}?"
    return f"{otherwise}: {', '.join(known)}" if otherwise else ""


def _spelled(key: Any, parent: Path, source: Source) -> str | int:
    """A key that is not a text, as the file spells it."""
    if isinstance(key, int) and not isinstance(key, bool):
        return key
    spellings = SPELLINGS.get(str(key), (str(key),))
    return next((text for text in spellings if (*parent, text) in source.document.lines), spellings[0])


def key_path(loc: tuple[int | str, ...], data: Any, *, keep_last: bool) -> Path:
    """Pydantic's location without the tags of unions: only keys that the data has."""
    path: list[str | int] = []
    node = data
    for index, part in enumerate(loc):
        if child_at(node, part):
            node = node[part]
        elif not (keep_last and index == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def specs_in(annotation: Any) -> list[type[Spec]]:
    """The spec classes an annotation may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [spec for part in typing.get_args(annotation) for spec in specs_in(part)]


def specs_at(path: Path, data: Any) -> list[type[Spec]]:
    """The specs that may validate the mapping at ``path``: one, where what the user wrote says which."""
    specs: list[type[Spec]] = [Scenario]
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
        fields = [spec.model_fields[str(part)] for spec in specs if str(part) in spec.model_fields]
        specs = [spec for field in fields for spec in specs_in(field.annotation)]
        agreeing = [spec for spec in specs if isinstance(data, dict) and _agrees(spec, data)]
        specs = agreeing or specs
    return specs


def _agrees(spec: type[Spec], data: dict[Any, Any]) -> bool:
    """Whether the discriminating literal of ``spec`` is what the data says."""
    tag = _tag(spec)
    return tag is None or data.get(tag) in typing.get_args(spec.model_fields[tag].annotation)
