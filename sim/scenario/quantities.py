"""Numbers with units: ``50 ms``, ``80 GiB``, ``3.35 TB/s``, ``99 %``. Bare numbers are SI base units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction as Ratio
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

Units = Mapping[str, Ratio]

_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}
_POWERS = {**{prefix: Ratio(10**power) for prefix, power in _DECIMAL.items()}, "P": Ratio(10**15)}

TIME: Units = {
    "s": Ratio(1),
    "ms": Ratio(1, 10**3),
    "us": Ratio(1, 10**6),
    "µs": Ratio(1, 10**6),
    "ns": Ratio(1, 10**9),
    "min": Ratio(60),
    "h": Ratio(3600),
    "d": Ratio(86400),
}
BYTES: Units = {f"{prefix}B": Ratio(10**power) for prefix, power in _DECIMAL.items()} | {
    f"{prefix}B": Ratio(2**power) for prefix, power in _BINARY.items()
}
BYTES_PER_SECOND: Units = {f"{unit}/s": factor for unit, factor in BYTES.items()}
FLOPS: Units = {f"{prefix}{unit}": factor for unit in ("FLOP/s", "FLOPS") for prefix, factor in _POWERS.items()}
RATE: Units = {
    "/s": Ratio(1),
    "req/s": Ratio(1),
    "requests/s": Ratio(1),
    "Hz": Ratio(1),
    "/min": Ratio(1, 60),
    "req/min": Ratio(1, 60),
    "/h": Ratio(1, 3600),
}
PERCENT: Units = {"%": Ratio(1, 100)}
COUNT: Units = {"K": Ratio(10**3), "M": Ratio(10**6), "B": Ratio(10**9), "T": Ratio(10**12)}

_NUMBER = r"[-+]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][-+]?\d{1,3})?"
NUMBER = re.compile(rf"({_NUMBER})\s*(.*)", re.ASCII | re.DOTALL)


class UnfitError(ValueError):
    """A value that a key cannot take, with its cure."""

    def __init__(self, problem: str, cure: str) -> None:
        self.problem = problem
        self.cure = cure
        super().__init__(f"{problem}; {cure}")


def shown(value: Any) -> str:
    """A value as the user wrote it, cut short."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def quantity(value: Any, units: Units) -> float:
    """A number, or a text of a number and one of ``units``, as a float in SI base units. Raises UnfitError."""
    cure = f"give a number, or one with a unit: {', '.join(units)}"
    if isinstance(value, str):
        match = NUMBER.fullmatch(value.strip())
        if match is None:
            raise UnfitError(f"{shown(value)} is not a number with a unit", cure)
        number, unit = match.groups()
        if unit and unit not in units:
            raise UnfitError(f"unknown unit {shown(unit)} in {shown(value)}", cure)
        return finite(Ratio(number) * units[unit] if unit else Ratio(number))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"{shown(value)} is not a number", cure)
    return finite(value)


def finite(value: float | Ratio) -> float:
    """``value`` as a float. Raises UnfitError if it is NaN, infinite, or too large to be one."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnfitError(f"{shown(number)} is not a finite number", "give a finite number")
    return number


def _typed(units: Units, what: str, **bounds: float) -> Any:
    names = "|".join(re.escape(unit) for unit in units)
    keywords = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
    number = {"type": "number"} | {keywords[name]: bound for name, bound in bounds.items()}
    text = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*({names})?\s*$"}
    return Annotated[
        float,
        BeforeValidator(lambda value: quantity(value, units)),
        Field(**bounds),  # type: ignore[call-overload]
        WithJsonSchema({"anyOf": [number, text], "description": f"{what}, or a text with a unit: {', '.join(units)}"}),
    ]


def _share(value: Any) -> float:
    share = quantity(value, PERCENT)
    if share > 1:
        raise UnfitError(
            f"{shown(value)} is more than the whole", "give a share of at most 1, or a percentage such as '99 %'"
        )
    return share


def _version(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"{shown(value)} is not a version", 'give it as a text, as in version: "0.33"')
    example = f'"{shown(value)}" (as a number, 0.10 would be 0.1)'
    raise UnfitError(f"{shown(value)} is a number, and a version is a text", f"put it in quotes: {example}")


def whole(value: Any) -> int:
    """A whole number, written as one or as 1e3. Raises UnfitError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise UnfitError(f"{shown(value)} is not a whole number", "give a whole number, without a unit")


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"{shown(value)} is not a number", "give a number, without a unit")
    return finite(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise UnfitError(f"{shown(value)} is not true or false", "give true or false")


def _requests_or_seconds(value: Any) -> int | float:
    """An int counts requests, a text is a time."""
    number: int | float
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str):
        number = quantity(value, TIME)
    else:
        raise UnfitError(
            f"{shown(value)} is no number of requests and no time", "give a whole number, or a time such as '30 s'"
        )
    if number < 0:
        raise UnfitError(f"{shown(value)} is negative", "give 0 or more")
    return number


def _acceptance(value: Any) -> float | tuple[float, ...]:
    """A chance, or a list of them."""
    if isinstance(value, list | tuple):
        return tuple(_chance(item) for item in value)
    return _chance(value)


def _chance(value: Any) -> float:
    chance = _share(value)
    if chance < 0:
        raise UnfitError(f"{shown(value)} is less than 0", "give a chance from 0 to 1")
    return chance


def _weights(value: Any) -> tuple[float, ...]:
    """A list of positive numbers."""
    numbers = value if isinstance(value, list | tuple) else []
    if not numbers or not all(isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < 1e9 for n in numbers):
        raise UnfitError(f"{shown(value)} is no list of weights", "give numbers above 0, such as [2, 1]")
    return tuple(map(float, numbers))


_CHANCE = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*%?\s*$"},
    ]
}
Seconds = _typed(TIME, "Seconds", ge=0, le=1e12)
PositiveSeconds = _typed(TIME, "Seconds", gt=0)
Bytes = _typed(BYTES, "Bytes (GB is 1e9, GiB is 2^30)", gt=0)
BytesPerSecond = _typed(BYTES_PER_SECOND, "Bytes per second", ge=1e6, le=1e18)
FlopsPerSecond = _typed(FLOPS, "Dense FLOPs per second", ge=1e6, le=1e21)
PerSecond = _typed(RATE, "Per second", gt=0, le=1e6)
RateOrNone = _typed(RATE, "Per second", ge=0, le=1e6)
Parameters = _typed(COUNT, "A count", gt=0, le=1e15)
Fraction = Annotated[
    float,
    BeforeValidator(_share),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*%?\s*$"},
            ],
            "description": "A share from 0 to 1, or a text such as 99 %",
        }
    ),
]
Acceptance = Annotated[
    float | tuple[float, ...],
    BeforeValidator(_acceptance),
    WithJsonSchema({"anyOf": [_CHANCE, {"type": "array", "items": _CHANCE, "minItems": 1}]}),
]
Weights = Annotated[
    tuple[float, ...],
    BeforeValidator(_weights),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "number", "exclusiveMinimum": 0}}),
]
Version = Annotated[str, BeforeValidator(_version)]
WHOLE = BeforeValidator(whole)
REAL = BeforeValidator(_real)
Flag = Annotated[bool, BeforeValidator(_flag)]
Warmup = Annotated[
    int | float,
    BeforeValidator(_requests_or_seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*({'|'.join(TIME)})?\s*$"},
            ],
            "description": f"Requests, or a text of a time with a unit: {', '.join(TIME)}",
        }
    ),
]
