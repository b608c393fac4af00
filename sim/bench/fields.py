"""Looking into a parsed file: what is there under a name, as the type it should have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(data: Mapping[str, Any], name: str) -> float | None:
    """A finite number; None where there is none. Raises ValueError where there is something else."""
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number")  # noqa: TRY004 - of a file, not of a caller
    return float(value) if math.isfinite(value) else None


def whole(data: Mapping[str, Any], name: str) -> int | None:
    """A whole number, such as a count."""
    value = number(data, name)
    if value is None:
        return None
    if not value.is_integer():
        raise ValueError(f"{name} is {value:g}, no whole number")
    return int(value)


def text(data: Mapping[str, Any], name: str) -> str | None:
    """A text; None where there is none, or something else."""
    value = data.get(name)
    return value if isinstance(value, str) else None


def mapping(data: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """What lies under a path of keys; empty where nothing does."""
    found: Any = data
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def listed(data: Mapping[str, Any], name: str) -> list[Any]:
    """A list; empty where there is none."""
    value = data.get(name)
    return value if isinstance(value, list) else []


def scaled(statistics: Mapping[str, float], factor: float, *, counts: tuple[str, ...] = ("count",)) -> dict[str, float]:
    """Statistics in another unit; a count has none."""
    return {name: value if name in counts else value * factor for name, value in statistics.items()}


def known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Without what is None."""
    return {name: value for name, value in values.items() if value is not None}
