"""Reading one cell of a trace: token counts, seconds, clock times. A ValueError says what is wrong with the cell."""

from __future__ import annotations

import math
import re
from array import array
from datetime import UTC, datetime, timedelta

from sim.scenario.specs import MOST_TOKENS

MOST_SECONDS = 1e10
"""Three centuries: a time beyond is a mistake in the file, perhaps milliseconds."""

_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?( ?Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def read_count(cell: object) -> int:
    """A token count: a whole number from 1 to MOST_TOKENS; ``374.0`` counts as whole."""
    value = _whole(cell)
    if value < 1:
        raise ValueError(f"{value} is no token count: a request has at least one prompt and one output token")
    if value > MOST_TOKENS:
        raise ValueError(f"{value} tokens is more than any request has ({MOST_TOKENS})")
    return value


def read_priority(cell: object) -> int:
    """A priority: a whole number, lower is more important."""
    value = _whole(cell)
    if abs(value) >= 2**31:
        raise ValueError(f"{value} is no priority: it has more than 31 bits")
    return value


def read_seconds(cell: object) -> float:
    """Seconds since the run's start."""
    value = _bounded_seconds(cell)
    if value < 0.0:
        raise ValueError(f"{value:g} s is before the run's start")
    return value


def read_clock_ns(cell: object) -> int:
    """A clock time in nanoseconds: ``2023-11-16 18:15:46.6805900``, with or without a time zone, or bare seconds."""
    text = str(cell).strip()
    match = _CLOCK.fullmatch(text)
    if match is None:
        return round(_bounded_seconds(cell) * 1_000_000_000)
    moment, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(moment + (zone or "Z").strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: {error}") from None
    return ((at - _EPOCH) // _SECOND) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def read_clock_ms(cell: object) -> int:
    """A time in milliseconds of some clock, in nanoseconds; exact to the microsecond."""
    value = _number(cell)
    if not abs(value) <= MOST_SECONDS * 1000:  # nan neither
        raise ValueError(f"{_shown(cell)} is no time in milliseconds")
    return round(value * 1000) * 1000


def read_whole(cell: object) -> int:
    """A whole number of at most 63 bits, from 0 on."""
    value = _whole(cell)
    if not 0 <= value < 2**63:
        raise ValueError(f"{_shown(cell)} is no number from 0 on")
    return value


def read_milliseconds(cell: object, per_ms: float = 1.0) -> float:
    """A time from 0 on in milliseconds, or in a unit of which ``per_ms`` make one; as written."""
    value = _number(cell)
    if not 0 <= value <= MOST_SECONDS * 1000 * per_ms:  # nan neither
        raise ValueError(f"{_shown(cell)} is no time from 0 on")
    return value


def read_name(cell: object) -> str:
    """A name: whatever is not empty."""
    if cell is None or cell == "" or isinstance(cell, (list, dict)):
        raise ValueError("the cell is empty" if cell is None or cell == "" else f"{_shown(cell)} is no name")
    return str(cell)


def read_hash_ids(cell: object) -> array[int]:
    """Ids of a prompt's blocks, in order: whole numbers of 63 bits at most, packed."""
    if cell is None:
        raise ValueError("the cell is empty")
    if not isinstance(cell, list) or any(type(value) is not int for value in cell):
        raise ValueError(f"{_shown(cell)} is no list of whole numbers")
    try:
        return array("q", cell)
    except OverflowError:
        raise ValueError(f"{_shown(cell)} has an id of more than 63 bits") from None


def _bounded_seconds(cell: object) -> float:
    value = _number(cell)
    if not abs(value) <= MOST_SECONDS:  # nan neither
        raise ValueError(f"{_shown(cell)} is no time in seconds")
    return value


def _whole(cell: object) -> int:
    if isinstance(cell, str) and cell.isdecimal() and cell.isascii() and len(cell) < 19:
        return int(cell)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return cell
    value = _number(cell)
    if not value.is_integer():  # nan and infinity are no integers either
        raise ValueError(f"{_shown(cell)} is no whole number")
    return int(value)


def _number(cell: object) -> float:
    if cell is None or cell == "":
        raise ValueError("the cell is empty")
    if isinstance(cell, str):
        text = cell.strip()
        if "_" not in text and text.isascii():
            try:
                return float(text)
            except ValueError:
                pass
    elif isinstance(cell, (int, float)) and not isinstance(cell, bool):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    raise ValueError(f"{_shown(cell)} is no number")


def _shown(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 40 else text[:36] + " ..."
