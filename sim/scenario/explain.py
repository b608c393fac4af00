"""Pydantic's errors in the user's words: the key as written, the problem with its value, and a cure."""

from __future__ import annotations

import typing
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sim.errors import Problem
from sim.scenario.document import Path, Source
from sim.scenario.specs import Scenario, Spec

CURES = {
    "greater_than": "give a number above {gt}",
    "greater_than_equal": "give a number of at least {ge}",
    "less_than": "give a number below {lt}",
    "less_than_equal": "give a number of at most {le}",
    "int_type": "give a whole number",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "float_parsing": "give a number",
    "bool_type": "give true or false",
    "bool_parsing": "give true or false",
    "string_type": "give a text",
    "dict_type": "give keys and values",
    "model_type": "give keys and values",
    "model_attributes_type": "give keys and values",
    "finite_number": "give a finite number",
}


def explain(error: ValidationError, source: Source) -> list[Problem]:
    """One problem per error, each at its own key."""
    return [_explain(detail, source) for detail in error.errors(include_url=False)]


def _explain(detail: ErrorDetails, source: Source) -> Problem:
    path = key_path(detail["loc"], source.data, keep_last=detail["type"] in {"missing", "extra_forbidden"})
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return source.problem(path, "unknown key", _nearest(str(path[-1]), keys_at(path[:-1], source.data)))
    if kind == "missing":
        return source.problem(path, "is required and missing", f"add {path[-1]}: ...; `sim init` writes an example")
    if kind in {"literal_error", "enum"}:
        choices = [choice.strip(" '") for choice in str(context["expected"]).replace(" or ", ", ").split(",")]
        return source.problem(path, f"{detail['input']!r} is not one of the choices", _nearest(str(detail["input"]), choices))
    if kind == "union_tag_invalid":
        tag = str(context["discriminator"]).strip("'")
        choices = [choice.strip(" '") for choice in str(context["expected_tags"]).split(",")]
        return source.problem((*path, tag), f"{context['tag']!r} is not one of the choices", _nearest(context["tag"], choices))
    if kind == "union_tag_not_found":
        tag = str(context["discriminator"]).strip("'")
        return source.problem(path, f"says no {tag}", f"add {tag}: {' or '.join(choices_of(path, source.data, tag))}")
    if kind == "value_error":
        return source.problem(path, str(context["error"]), "see `sim schema` for what this key takes")
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    cure = CURES.get(kind, "see `sim schema` for what this key takes").format(**context)
    return source.problem(path, f"{_shown(detail['input'])}: {message}", cure)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "known here: " + ", ".join(known)


def key_path(loc: tuple[int | str, ...], data: Any, *, keep_last: bool) -> Path:
    """Pydantic's location without the tags of unions: only keys that the data has."""
    path: list[str | int] = []
    node = data
    for index, part in enumerate(loc):
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
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


def spec_at(path: Path, data: Any) -> type[Spec] | None:
    """The spec class that validates the mapping at ``path``."""
    spec: type[Spec] = Scenario
    for part in path:
        node = data.get(part) if isinstance(data, dict) else None
        field = spec.model_fields.get(str(part))
        candidates = specs_in(field.rebuild_annotation()) if field else []
        if not candidates or not isinstance(node, dict):
            return None
        spec = next((candidate for candidate in candidates if _agrees(candidate, node)), candidates[0])
        data = node
    return spec


def _agrees(spec: type[Spec], data: dict[str, Any]) -> bool:
    """Whether the discriminating literal of ``spec`` is what the data says."""
    for name in ("process", "distribution", "model"):
        field = spec.model_fields.get(name)
        if field is not None and typing.get_origin(field.annotation) is typing.Literal:
            return data.get(name) in typing.get_args(field.annotation)
    return True


def keys_at(path: Path, data: Any) -> list[str]:
    """Keys known at a place."""
    spec = spec_at(path, data)
    return list(spec.model_fields) if spec else []


def choices_of(path: Path, data: Any, tag: str) -> list[str]:
    """Values of a discriminator at a place."""
    parent = spec_at(path[:-1], data)
    field = parent.model_fields.get(str(path[-1])) if parent else None
    candidates = specs_in(field.rebuild_annotation()) if field else []
    return [choice for spec in candidates for choice in typing.get_args(spec.model_fields[tag].annotation)]


