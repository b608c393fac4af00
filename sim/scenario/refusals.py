"""What the design names but this version cannot do: refused by name, never ignored."""

from __future__ import annotations

from typing import Any

from sim.errors import Problem
from sim.scenario.document import Source, split_path
from sim.scenario.keys import REFUSED_KEYS, REFUSED_VALUES


def refuse(source: Source) -> list[Problem]:
    """Problems of refused keys, which are taken out of the data, and of refused values, which stay."""
    return [*_keys(source), *_values(source)]


def _keys(source: Source) -> list[Problem]:
    problems = []
    for refused, (problem, cure) in REFUSED_KEYS.items():
        room, _, name = refused.rpartition(".")
        section = source.get(split_path(room)) if room else source.data
        if not isinstance(section, dict):
            continue
        for key in [key for key in section if isinstance(key, str) and key.replace("-", "_") == name]:
            problems.append(source.problem((*split_path(room), key) if room else (key,), problem, cure))
            del section[key]
    return problems


def _values(source: Source) -> list[Problem]:
    problems = []
    for key, (values, problem, cure) in REFUSED_VALUES.items():
        value = source.get(split_path(key))
        if isinstance(value, str) and value in values:
            problems.append(source.problem(split_path(key), f"{value}: {problem}", cure))
    arrivals: Any = source.get(("traffic", "arrivals"))
    if isinstance(arrivals, dict) and arrivals.get("process") == "closed" and "max_concurrency" in arrivals:
        problem, cure = "closed arrivals are bounded by concurrency already", "leave it out, and lower concurrency"
        problems.append(source.problem(("traffic", "arrivals", "max_concurrency"), problem, cure))
    return problems
