"""Numbers with units: ``50 ms``, ``80 GiB``, ``3.35 TB/s``, ``99 %``. Bare numbers are SI base units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
BYTES = {f"{prefix}B": factor for prefix, factor in (DECIMAL | BINARY).items()}
BYTES_PER_SECOND = {f"{unit}/s": factor for unit, factor in BYTES.items()}
FLOPS = {f"{prefix}{unit}": factor for prefix, factor in (DECIMAL | {"P": 1e15}).items() for unit in ("FLOP/s", "FLOPS")}
RATE = {"/s": 1.0, "req/s": 1.0, "requests/s": 1.0, "Hz": 1.0, "/min": 1 / 60, "req/min": 1 / 60, "/h": 1 / 3600}
PERCENT = {"%": 0.01}

NUMBER = re.compile(r"([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*)")


def quantity(value: Any, units: Mapping[str, float]) -> float:
    """A number, or a text of a number and one of ``units``, in SI base units. Raises ValueError with the units known."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a number or a text such as '5 {_example(units)}', not {_shown(value)}")
    if isinstance(value, str):
        match = NUMBER.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a number with a unit; units known here: {', '.join(units)}")
        number, unit = match.groups()
        if unit and unit not in units:
            raise ValueError(f"unknown unit {unit!r} in {value!r}; units known here: {', '.join(units)}")
        value = float(number) * (units[unit] if unit else 1.0)
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return value


def _example(units: Mapping[str, float]) -> str:
    return next(iter(units))


def _shown(value: Any) -> str:
    return "true or false" if isinstance(value, bool) else "nothing" if value is None else f"a {type(value).__name__}"


def _typed(units: Mapping[str, float], **bounds: float) -> Any:
    described = {"description": "A number in SI base units, or a text with one of the units " + ", ".join(units)}
    return Annotated[
        float,
        BeforeValidator(lambda value: quantity(value, units)),
        Field(**bounds),  # type: ignore[call-overload]
        WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], **described}),
    ]


def _version(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a version must be a text: write it in quotes, as in \"{value}\" (0.10 as a number is 0.1)")
    return value


Seconds = _typed(TIME, ge=0)
PositiveSeconds = _typed(TIME, gt=0)
Bytes = _typed(BYTES, gt=0)
BytesPerSecond = _typed(BYTES_PER_SECOND, gt=0)
FlopsPerSecond = _typed(FLOPS, gt=0)
PerSecond = _typed(RATE, gt=0, le=1e6)
Fraction = _typed(PERCENT, gt=0, le=1)
Version = Annotated[str, BeforeValidator(_version)]


def _requests_or_seconds(value: Any) -> int | float:
    """An int counts requests, a text is a time."""
    if isinstance(value, int) and not isinstance(value, bool):
        number: int | float = value
    elif isinstance(value, str):
        number = quantity(value, TIME)
    else:
        raise ValueError("must be a whole number of requests, or a time such as '30 s'")
    if number < 0:
        raise ValueError("must not be negative")
    return number


Warmup = Annotated[
    int | float,
    BeforeValidator(_requests_or_seconds),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]
