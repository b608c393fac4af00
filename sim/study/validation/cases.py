"""Measured cases out of a CSV file: one row is one scenario and what was measured of it."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from sim.errors import Problem, RidgelineError, ScenarioError
from sim.resources import nearest

LATENCIES = ("ttft", "tpot", "e2e")
FIGURES = ("mean", "p50", "p90", "p95", "p99")
RATES = ("output_tokens_per_s", "total_tokens_per_s")
METRICS = (*(f"{latency}_{figure}" for latency in LATENCIES for figure in FIGURES), *RATES)
"""What a case may have measured: seconds, and tokens per second of the whole deployment."""
LOADS = ("closed", "open", "burst")
ARRIVALS = ("poisson", "constant")
MOST_PROBLEMS = 20
"""Problems of a file that are told before the rest is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row. None where the source does not say; ``measured`` holds what was measured by the names of METRICS."""

    file: str
    line: int
    case_id: str
    set: str
    gpu: str
    engine: str
    model: str
    load: str
    prompt_tokens: float
    """The longest prompt (a mean where the source states one), the shared prefix included."""
    output_tokens: float
    date: str | None = None
    source: str | None = None
    license: str | None = None
    n_gpus: int | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    engine_version: str | None = None
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    """Requests per second."""
    arrival: str | None = None
    num_requests: int | None = None
    warmup_requests: int | None = None
    length_ratio: float = 1.0
    """Lengths are uniform integers from this share of the longest up to it."""
    shared_prefix_tokens: int | None = None
    prefix_groups: int | None = None
    prompts_per_group: int | None = None
    max_model_len: int | None = None
    max_batched_tokens: int | None = None
    max_sequences: int | None = None
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    scheduler_recv_interval: int | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def day(self) -> datetime.date | None:
        """The date; of a month alone, its first day."""
        if self.date is None:
            return None
        return datetime.date.fromisoformat(self.date if len(self.date) > 7 else f"{self.date}-01")

    def cell(self, column: str) -> str:
        """A column's value as text, as ``--where`` compares it; blank where there is none."""
        value = getattr(self, column)
        if value is None:
            return ""
        return f"{value:g}" if isinstance(value, float) else str(value)


def _text(cell: str) -> str:
    return cell


def _count(cell: str) -> int:
    number = float(cell)
    if not isfinite(number) or number != int(number) or number < 1:
        raise ValueError("is no whole number of 1 or more")
    return int(number)


def _positive(cell: str) -> float:
    number = float(cell)
    if not isfinite(number) or number <= 0:
        raise ValueError("is no positive number")
    return number


def _ratio(cell: str) -> float:
    number = _positive(cell)
    if number > 1:
        raise ValueError("is above 1")
    return number


def _flag(cell: str) -> bool:
    if cell.lower() not in ("on", "off", "true", "false"):
        raise ValueError("is neither on nor off")
    return cell.lower() in ("on", "true")


def _date(cell: str) -> str:
    datetime.date.fromisoformat(cell if len(cell) > 7 else f"{cell}-01")
    return cell


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def read(cell: str) -> str:
        if cell not in known:
            raise ValueError(f"is none of {', '.join(known)}")
        return cell

    return read


READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("case_id", "set", "gpu", "engine", "model", "engine_version", "weight_dtype", "kv_dtype"), _text),
    **dict.fromkeys(("source", "license"), _text),
    **dict.fromkeys(("n_gpus", "tp", "pp", "dp", "ep", "concurrency", "num_requests", "warmup_requests"), _count),
    **dict.fromkeys(("shared_prefix_tokens", "prefix_groups", "prompts_per_group", "max_model_len"), _count),
    **dict.fromkeys(("max_batched_tokens", "max_sequences", "scheduler_recv_interval"), _count),
    **dict.fromkeys(("prefill_replicas", "decode_replicas"), _count),
    **dict.fromkeys(("prompt_tokens", "output_tokens", "request_rate"), _positive),
    **dict.fromkeys(("chunked_prefill", "prefix_caching"), _flag),
    "date": _date,
    "load": _one_of(LOADS),
    "arrival": _one_of(ARRIVALS),
    "length_ratio": _ratio,
}
"""How a cell of each column is read."""
MEASURED = {(name if name in RATES else f"{name}_ms"): name for name in METRICS}
"""Columns of what was measured; latencies are milliseconds there."""
NEEDED = ("case_id", "set", "gpu", "engine", "model", "load", "prompt_tokens", "output_tokens")
IN_MILLISECONDS = 1e-3
COLUMNS = tuple(item.name for item in fields(Case) if item.name not in ("file", "line", "measured"))
"""Columns that describe a case, in order."""


def read_cases(path: Path) -> list[Case]:
    """All rows of a file. Raises ScenarioError with file, line and column of what cannot be read."""
    if not path.is_file():
        raise RidgelineError(f"{path}: no such file\n  cure: give the path of a CSV file of cases")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _cases(str(path), csv.reader(file, strict=True))
    except UnicodeDecodeError as error:
        raise _error(str(path), None, "", "this is no UTF-8 text", "save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise _error(str(path), None, "", f"no CSV: {error}", "close every quote") from error


def _cases(file: str, reader: Any) -> list[Case]:
    header = [name.strip() for name in next(reader, [])]
    _check_header(file, header)
    cases: list[Case] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for cells in reader:
        line = reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        found = list(_row(file, line, header, cells, cases))
        problems += found
        if not found:
            first = seen.setdefault(cases[-1].case_id, line)
            if first != line:
                text = f"{cases[-1].case_id} is the name of line {first} too"
                problems.append(Problem(file, line, "case_id", text, "give every case a name of its own"))
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise ScenarioError(problems)
    if not cases:
        raise _error(file, None, "", "there is no case", "give a header line and one line per case")
    return cases


def _check_header(file: str, header: list[str]) -> None:
    known = [*READ, *MEASURED]
    for name in header:
        if name not in known:
            raise _error(file, 1, name, "unknown column", nearest(name, known))
        if header.count(name) > 1:
            raise _error(file, 1, name, "two columns have this name", "keep one of them")
    for name in NEEDED:
        if name not in header:
            raise _error(file, 1, name, "missing column", f"a case needs {', '.join(NEEDED)}")


def _row(file: str, line: int, header: list[str], cells: list[str], cases: list[Case]) -> Iterator[Problem]:
    """Problems of a row; without any, its case is appended."""
    if len(cells) != len(header):
        text = f"{len(cells)} cells under a header of {len(header)}"
        yield Problem(file, line, "", text, "give every line one cell per column")
        return
    values: dict[str, Any] = {}
    measured: dict[str, float] = {}
    faulty = False
    for name, text in zip(header, (cell.strip() for cell in cells), strict=True):
        if not text:
            continue
        try:
            if name in MEASURED:
                metric = MEASURED[name]
                measured[metric] = _positive(text) * (1.0 if metric in RATES else IN_MILLISECONDS)
            else:
                values[name] = READ[name](text)
        except ValueError as error:
            faulty = True
            problem = str(error) if str(error).startswith("is ") else "cannot be read"
            yield Problem(file, line, name, f"{text!r} {problem}", "mend or empty this cell")
    if not faulty:
        faults = list(_missing(file, line, values))
        yield from faults
        if not faults:
            cases.append(Case(file=file, line=line, measured=measured, **values))


def _missing(file: str, line: int, values: Mapping[str, Any]) -> Iterator[Problem]:
    for name in NEEDED:
        if name not in values:
            yield Problem(file, line, name, "is empty", "fill it in, or drop the line")
    needed = {"closed": "concurrency", "open": "request_rate"}.get(values.get("load", ""))
    if needed and needed not in values:
        yield Problem(file, line, needed, f"is empty, and load is {values['load']}", "fill it in")


def _error(file: str, line: int | None, column: str, problem: str, cure: str) -> ScenarioError:
    return ScenarioError([Problem(file, line, column, problem, cure)])


def chosen(cases: Sequence[Case], where: Mapping[str, str]) -> list[Case]:
    """The cases whose columns have these values. Raises RidgelineError for an unknown column, and when none is left."""
    for column in where:
        if column not in COLUMNS:
            raise RidgelineError(f"--where {column}: unknown column\n  cure: {nearest(column, list(COLUMNS))}")
    left = [case for case in cases if all(case.cell(column) == value for column, value in where.items())]
    if not left:
        values = "; ".join(f"{column}: {_values(cases, column)}" for column in where)
        raise RidgelineError(f"--where leaves no case\n  cure: choose among {values}")
    return left


def _values(cases: Sequence[Case], column: str) -> str:
    found = sorted({case.cell(column) for case in cases})
    return ", ".join(text or "(empty)" for text in found[:12]) + (", ..." if len(found) > 12 else "")
