"""Numbers for people: three significant digits, the unit that fits, and "-" for what is undefined."""

from __future__ import annotations

from math import floor, isfinite, isnan, log10
from typing import NamedTuple, TypeGuard

UNDEFINED = "-"
_SI_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LARGE_NUMBERS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


class TimeUnit(NamedTuple):
    """A unit of time and how many of it make a second."""

    name: str
    per_s: float


_TIME_UNITS = (
    (0.9995e-3, TimeUnit("µs", 1e6)),
    (0.9995, TimeUnit("ms", 1e3)),
    (600.0, TimeUnit("s", 1.0)),
    (3 * 3600.0, TimeUnit("min", 1 / 60)),
)


def defined(value: float | None) -> TypeGuard[float]:
    """Whether a figure exists: neither None nor NaN."""
    return value is not None and not isnan(value)


def significant(value: float | None, digits: int = 3) -> str:
    """``digits`` significant digits, but never fewer than the integer part has: 0.0123, 1.23, 12,346."""
    if not defined(value):
        return UNDEFINED
    if not isfinite(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e12:
        return f"{value:.{digits - 1}e}"
    exponent = floor(log10(abs(float(f"{value:.{digits - 1}e}"))))
    text = f"{value:,.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def time_unit(value_s: float) -> TimeUnit:
    """The unit in which a duration reads best."""
    if value_s == 0:
        return TimeUnit("s", 1.0)
    for limit_s, unit in _TIME_UNITS:
        if abs(value_s) < limit_s:
            return unit
    return TimeUnit("h", 1 / 3600)


def duration(value_s: float | None) -> str:
    """``0.812`` is "812 ms"."""
    if not defined(value_s):
        return UNDEFINED
    unit = time_unit(value_s)
    return f"{significant(value_s * unit.per_s)} {unit.name}"


def count(value: float | None) -> str:
    """A whole number, in full."""
    if not defined(value) or not isfinite(value):
        return significant(value)
    return f"{value:,.0f}"


def counted(value: float | None, noun: str) -> str:
    """``1 replica``, ``2 replicas``."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def large_count(value: float | None) -> str:
    """``8.03e9`` is "8.03 billion"."""
    if defined(value) and isfinite(value):
        for size, name in _LARGE_NUMBERS:
            if abs(value) >= size:
                return f"{significant(value / size)} {name}"
    return count(value)


def percent(share: float | None) -> str:
    """``0.983`` is "98.3 %"; only all of it is "100 %", and only none of it "0 %"."""
    if not defined(share):
        return UNDEFINED
    if 0 < share < 1e-4:
        return "<0.01 %"
    if 0.999999 <= share < 1:
        return ">99.99 %"
    for digits in range(3, 8):
        text = significant(100 * share, digits)
        if text != "100" or share >= 1:
            break
    return f"{text} %"


def si(value: float | None, unit: str) -> str:
    """A decimal prefix: ``si(989e12, "FLOP/s")`` is "989 TFLOP/s"."""
    if not defined(value) or not isfinite(value):
        return significant(value)
    scaled, index = value, 0
    while abs(scaled) >= 999.5 and index < len(_SI_PREFIXES) - 1:
        scaled, index = scaled / 1000, index + 1
    return f"{significant(scaled)} {_SI_PREFIXES[index]}{unit}"


def byte_count(value: float | None) -> str:
    """Binary units: ``85e9`` is "79.2 GiB"."""
    if not defined(value) or not isfinite(value):
        return significant(value)
    scaled, index = value, 0
    while abs(scaled) >= 1023.5 and index < len(_BINARY_UNITS) - 1:
        scaled, index = scaled / 1024, index + 1
    return f"{significant(scaled)} {_BINARY_UNITS[index]}"


def bytes_per_s(value: float | None) -> str:
    """Decimal, as bandwidths are sold: ``3.35e12`` is "3.35 TB/s"."""
    return si(value, "B/s")


def flops_per_s(value: float | None) -> str:
    """``989e12`` is "989 TFLOP/s"."""
    return si(value, "FLOP/s")


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` characters, the middle left out."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"
