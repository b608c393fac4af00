"""What the design names but this version cannot do: refused by name, never ignored."""

from __future__ import annotations

from typing import Any

from sim.errors import Problem
from sim.scenario.document import Source, split_path
from sim.scenario.keys import NOT_YET, ONE_FOR_NOW, REFUSED_KEYS, REFUSED_VALUES

MISSING = object()


def refuse(source: Source) -> list[Problem]:
    """Take refused keys out of the data and say why; refused values are left for the message alone."""
    problems: list[Problem] = []
    for key, reason in REFUSED_KEYS.items():
        parent = _value(source.data, key.rpartition(".")[0])
        name = key.rpartition(".")[2]
        if isinstance(parent, dict) and name in parent:
            what, _, cure = reason.partition("; ")
            problems.append(source.problem(split_path(key), what, cure))
            del parent[name]
    for key, (values, reason) in REFUSED_VALUES.items():
        value = _value(source.data, key)
        if isinstance(value, str) and value in values:
            what, _, cure = reason.partition("; ")
            problems.append(source.problem(split_path(key), f"{value}: {what}", cure))
    for key, what in ONE_FOR_NOW.items():
        value = _value(source.data, key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            problems.append(source.problem(split_path(key), f"{what} {NOT_YET}", "use 1, with tensor_parallel or replicas"))
    return problems


def _value(data: Any, key: str) -> Any:
    for part in key.split(".") if key else []:
        if not isinstance(data, dict):
            return MISSING
        data = data.get(part, MISSING)
    return data
