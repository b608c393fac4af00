"""ServeGen's pools of clients: requests are drawn from what is known of each client, not read.

Found at github.com/alibaba/ServeGen, data/ (Xiang et al., ServeGen, 2025): a folder, or a ``.tar.gz`` of it, with
``chunk-N-trace.csv`` (start of a window of ten minutes, requests per second, CV, Gamma or Weibull, shape, scale) and
``chunk-N-dataset.json`` (from when on, distributions of ``input_tokens`` and ``output_tokens``) for each client.

As its ``generate_workload`` does with the clients' own rates: in each window a client draws ceil(rate x window) gaps of
its distribution, scaled so that they fill the window; the last request, at the window's end, is left out. Prompt and
output of a request are the same quantile of their distributions, those that hold at the window's start, and at least 1.
Every client and window has a random stream of its own. The trace ends with its last window; ``replicate``, ``sample``
and ``time_scale`` change its rate.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from sim.errors import Problem, TraceError
from sim.scenario.specs import MOST_TOKENS
from sim.traffic.arrivals import Floats, Integers
from sim.traffic.cells import read_seconds
from sim.traffic.formats.archive import members
from sim.traffic.formats.base import BLOCK_TOKENS, Format, Opening, Request, Rows
from sim.traffic.hash_blocks import HashBlocks
from sim.traffic.streams import generator

COLUMNS = {"prompt_tokens": "input_tokens", "output_tokens": "output_tokens"}
UNKNOWN = "drawn for a client whose lengths are not known by then"
MOST_PER_WINDOW = 10_000_000
_NAME = re.compile(r"(?:^|/)chunk-(\d+)-(trace\.csv|dataset\.json)$")
_CURE = "give ServeGen's own files"


class _Window(NamedTuple):
    start_s: float
    rate_per_s: float
    pattern: str
    shape: float
    scale: float


class Quantiles(NamedTuple):
    """A distribution over token counts."""

    tokens: Integers
    up_to: Floats
    """Probability of at most so many."""

    def at(self, shares: Floats) -> Integers:
        """Token counts at these quantiles."""
        places = np.searchsorted(self.up_to, shares, side="left")
        return self.tokens[np.minimum(places, len(self.tokens) - 1)]


class _Client(NamedTuple):
    number: int
    windows: list[_Window]
    lengths: list[tuple[float, dict[str, Quantiles]]]
    """From when on which distributions hold, ascending."""


class ServeGen:
    """Requests of a pool's clients."""

    def __init__(self, opening: Opening) -> None:
        self.columns = tuple(name for name in COLUMNS if name in opening.wanted)
        self.blocks = HashBlocks(BLOCK_TOKENS)
        self.skips = opening.skips
        self._path = opening.path
        self._seed = opening.seed
        self._start_s = opening.spec.start
        self._clients = self._read()

    def requests(self) -> Iterator[Request]:
        """In order of time, window by window."""
        self.skips.begin()
        starts_s = [window.start_s for window in self._clients[0].windows]
        ends_s = [*starts_s[1:], 2 * starts_s[-1] - starts_s[-2] if len(starts_s) > 1 else math.inf]
        for index, (start_s, end_s) in enumerate(zip(starts_s, ends_s, strict=True)):
            if end_s > self._start_s:
                yield from self._window(index, start_s, end_s)

    def _window(self, index: int, start_s: float, end_s: float) -> Iterator[Request]:
        drawn = [each for client in self._clients if (each := self._drawn(client, index, end_s - start_s)) is not None]
        if not drawn:
            return
        times_s = start_s + np.concatenate([each[0] for each in drawn])
        order = np.argsort(times_s, kind="stable")
        columns = [np.concatenate([each[1][name] for each in drawn])[order].tolist() for name in self.columns]
        for time_s, *cells in zip(times_s[order].tolist(), *columns, strict=True):
            yield Request(time_s, tuple(cells))

    def _drawn(self, client: _Client, index: int, length_s: float) -> tuple[Floats, dict[str, Integers]] | None:
        """One client's requests in a window: times from its start, and lengths. None: there are none."""
        window = client.windows[index]
        count = math.ceil(window.rate_per_s * length_s)
        if not window.pattern or count < 2:
            return None
        draws = generator(self._seed, f"servegen {client.number} {window.start_s:g}")
        if window.pattern == "Gamma":
            gaps = draws.standard_gamma(window.shape, count)
        else:
            gaps = draws.weibull(window.shape, count)
        total = float(gaps.sum())
        if total <= 0:
            return None
        times_s = np.cumsum(gaps)[:-1] * (length_s / total)
        times_s = times_s[times_s < length_s]
        lengths = next((each for since_s, each in reversed(client.lengths) if since_s <= window.start_s), None)
        if lengths is None:
            self.skips.leave_out(UNKNOWN, len(times_s))
            return None
        shares = draws.random(len(times_s))
        return times_s, {name: lengths[name].at(shares) for name in COLUMNS}

    def _read(self) -> list[_Client]:
        windows: dict[int, list[_Window]] = {}
        lengths: dict[int, list[tuple[float, dict[str, Quantiles]]]] = {}
        for name, content in members(self._path):
            match = _NAME.search(name.replace("\\", "/"))
            if match is not None and match[2] == "trace.csv":
                windows[int(match[1])] = self._windows(name, content)
            elif match is not None:
                lengths[int(match[1])] = self._lengths(name, content)
        if not windows:
            self._reject("", None, "there is no chunk-N-trace.csv")
        starts_s = [window.start_s for window in next(iter(windows.values()))]
        for number, own in windows.items():
            if [window.start_s for window in own] != starts_s:
                self._reject(f"chunk-{number}-trace.csv", None, "its windows are not those of the other clients")
        return [_Client(number, windows[number], lengths.get(number, [])) for number in sorted(windows)]

    def _windows(self, name: str, content: bytes) -> list[_Window]:
        made: list[_Window] = []
        for number, cells in enumerate(csv.reader(io.StringIO(content.decode("utf-8", "replace"))), 1):
            try:
                start, rate, _, pattern, shape, scale = cells
                window = _Window(read_seconds(start), float(rate), pattern, float(shape), float(scale))
            except ValueError as error:
                self._reject(name, number, f"no start, rate, CV, pattern, shape and scale: {error}")
            if pattern not in {"", "Gamma", "Weibull"}:
                self._reject(name, number, f"{pattern!r} is neither Gamma nor Weibull")
            if not 0 <= window.rate_per_s < MOST_PER_WINDOW or (pattern and not 0 < window.shape < math.inf):
                self._reject(name, number, "rate or shape is out of range")
            if made and window.start_s <= made[-1].start_s:
                self._reject(name, number, "this window does not begin after the one above")
            made.append(window)
        if not made:
            self._reject(name, None, "there is no window")
        return made

    def _lengths(self, name: str, content: bytes) -> list[tuple[float, dict[str, Quantiles]]]:
        try:
            said = json.loads(content)
            made = [(float(since), self._fields(name, fields)) for since, fields in said.items()]
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            self._reject(name, None, f"no object of distributions by time: {error}")
        return sorted(((since, fields) for since, fields in made if fields), key=lambda known: known[0])

    def _fields(self, name: str, fields: Mapping[str, Any]) -> dict[str, Quantiles]:
        """Empty where one of the distributions is: nothing is known then."""
        made = {}
        for column in COLUMNS.values():
            if column not in fields:
                self._reject(name, None, f"no {column}: this pool is not of text alone")
            if fields[column].strip(" {}"):
                made[column] = quantiles(fields[column])
        if len(made) < len(COLUMNS):
            return {}
        return {own: made[column] for own, column in COLUMNS.items()}

    def _reject(self, name: str, number: int | None, problem: str) -> NoReturn:
        raise TraceError(Problem(str(self._path / name if name else self._path), number, "", problem, _CURE))


def quantiles(text: str) -> Quantiles:
    """From ``{tokens: probability, ...}``. Raises ValueError where it is none."""
    numbers = np.array(re.split("[:,]", text.strip().strip("{}")), dtype=np.float64)
    if len(numbers) % 2 or text.count(":") != len(numbers) // 2:
        raise ValueError(f"{text[:40]!r} is no distribution")
    tokens, shares = numbers[::2], numbers[1::2]
    if not (np.all(shares >= 0) and abs(shares.sum() - 1) < 1e-3 and np.all((tokens >= 0) & (tokens <= MOST_TOKENS))):
        raise ValueError(f"{text[:40]!r} is no distribution over token counts")
    order = np.argsort(tokens, kind="stable")
    return Quantiles(np.maximum(1, tokens[order]).astype(np.int64), np.cumsum(shares[order]))


def _open(opening: Opening) -> Rows:
    path: Path = opening.path
    if opening.table is not None:
        raise TraceError(Problem(str(path), None, "", "this is no pool of clients", f"{_CURE}: a .tar.gz or a folder"))
    return ServeGen(opening)


FORMAT = Format("servegen", lambda _: False, _open)
