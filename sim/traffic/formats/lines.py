"""Lines of JSON that hold more than cells: keys are read one by one, and every complaint names file, line and key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from sim.errors import Problem, TraceError
from sim.traffic.cells import read_milliseconds
from sim.traffic.skips import Skips, Unanswered
from sim.traffic.tables import JsonlTable

T = TypeVar("T")
CURE = "mend or drop this line"


class Line:
    """One JSON object of a file, or a part of one."""

    def __init__(self, file: str, number: int | None, said: Mapping[str, Any], place: str = "") -> None:
        self.file = file
        self.number = number
        self.said = said
        self._place = place

    def get(self, key: str, read: Callable[[object], T]) -> T:
        """What it says. Raises TraceError where the key is missing or cannot be read."""
        try:
            return read(self.said.get(key))
        except ValueError as error:
            self.reject(f"{key}: {error}")

    def maybe(self, key: str, read: Callable[[object], T], otherwise: T) -> T:
        """The same, but ``otherwise`` where it says nothing."""
        return otherwise if self.said.get(key) is None else self.get(key, read)

    def parts(self, key: str, *, empty: bool = False) -> list[Line]:
        """The objects of a list. Raises TraceError where it is none, or has nothing in it unless that may be."""
        parts = self.said.get(key, [] if empty else None)
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            self.reject(f"{key}: this is no list of objects")
        if not parts and not empty:
            self.reject(f"{key}: the list is empty")
        return [self.part(part, f"{key}[{index}]") for index, part in enumerate(parts)]

    def part(self, said: Mapping[str, Any], name: str) -> Line:
        """An object within this one."""
        return Line(self.file, self.number, said, f"{self._place}{name}.")

    def reject(self, problem: str, cure: str = CURE) -> NoReturn:
        """Raise TraceError about this line."""
        raise TraceError(Problem(self.file, self.number, "", f"{self._place}{problem}", cure))


def seconds_from_ms(cell: object) -> float:
    """A time of not less than 0 in milliseconds, as seconds."""
    return read_milliseconds(cell) / 1000


def seconds_from_ns(cell: object) -> float:
    """A time of not less than 0 in nanoseconds, as seconds."""
    return read_milliseconds(cell, 1e6) / 1e9


def read_whole_list(cell: object, read: Callable[[object], T]) -> list[T]:
    """A list of what ``read`` reads."""
    if isinstance(cell, list):
        return [read(part) for part in cell]
    raise ValueError("this is no list")


def parsed(table: JsonlTable, parse: Callable[[Line], T]) -> Iterator[T]:
    """What each line says. Bad ones are left out where that is allowed; raises TraceError where there is none."""
    table.skips.begin()
    empty = True
    for number, said in table.objects():
        line = Line(str(table.path), number, said)
        for one in kept(table.skips, parse, line):
            empty = False
            yield one
    if empty:
        table.reject(None, "there is no request", "give a line per request or session")


def kept(skips: Skips, parse: Callable[[Line], T], line: Line) -> Iterator[T]:
    """What one line says, if it can be read."""
    try:
        yield parse(line)
    except TraceError as error:
        skips.bad(error.problem)
    except Unanswered as reason:
        skips.leave_out(str(reason))
