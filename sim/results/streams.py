"""What clients saw, token by token: when each chunk of each answer arrived. Kept only where somebody asks for it.

Every load generator's metrics are functions of this table (``definitions.py``), be it of a simulated run or of a result
file of a real one (``sim/bench``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.results.columns import Table

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Completed answers, as columns; row i has the chunks from ``offsets[i]`` to ``offsets[i + 1]``, at least one.

    Times are seconds of one clock. A chunk is what one server-sent event brings: one token, or several with speculation
    or buffering.
    """

    sent_s: Floats
    """Just before the request was sent, after any wait for a free client."""
    closed_s: Floats
    """When the response was read to its end."""
    prompt_tokens: Integers
    output_tokens: Integers
    offsets: Integers
    """One more than there are rows."""
    chunk_s: Floats
    """Arrivals of chunks."""
    chunk_tokens: Integers | None
    """Tokens of each; None where the source does not say."""

    def __len__(self) -> int:
        return len(self.sent_s)

    @property
    def chunks(self) -> Integers:
        """How many each answer came in."""
        return np.diff(self.offsets)

    @property
    def first_s(self) -> Floats:
        """When the first chunk came."""
        return self.chunk_s[self.offsets[:-1]]

    @property
    def last_s(self) -> Floats:
        """When the last chunk came."""
        return self.chunk_s[self.offsets[1:] - 1]

    def gaps_s(self) -> Floats:
        """Time between consecutive chunks of the same answer, all answers pooled in order."""
        return np.diff(self.chunk_s)[self._follows()]

    def gap_tokens(self) -> Integers | None:
        """Tokens of the chunk that ends each gap."""
        return None if self.chunk_tokens is None else self.chunk_tokens[1:][self._follows()]

    def first_chunk_tokens(self) -> Integers | None:
        """Tokens of the first chunk."""
        return None if self.chunk_tokens is None else self.chunk_tokens[self.offsets[:-1]]

    def take(self, rows: NDArray[np.bool_]) -> Streams:
        """Some of the answers."""
        kept = np.repeat(rows, self.chunks)
        return Streams(
            sent_s=self.sent_s[rows],
            closed_s=self.closed_s[rows],
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            offsets=np.concatenate(([0], np.cumsum(self.chunks[rows]))),
            chunk_s=self.chunk_s[kept],
            chunk_tokens=None if self.chunk_tokens is None else self.chunk_tokens[kept],
        )

    def grouped(self, tokens: int) -> Streams:
        """As a server sends them that holds tokens back until there are so many: the first chunk comes alone, then a
        group as soon as it has that many tokens, and the rest at the end (vLLM's and SGLang's stream interval).
        """
        if tokens == 1 or not len(self):
            return self
        assert self.chunk_tokens is not None, "a server knows the tokens of its chunks"
        ends = np.cumsum(self.chunk_tokens)
        sent, last = np.zeros(len(self.chunk_s), dtype=bool), self.offsets[1:] - 1
        sent[self.offsets[:-1]] = sent[last] = True
        for first, end in zip(self.offsets[:-1].tolist(), last.tolist(), strict=True):
            index = first
            while (index := int(np.searchsorted(ends[: end + 1], ends[index] + tokens))) <= end:
                sent[index] = True
        before = np.concatenate(([0], ends[sent][:-1]))
        counts = np.add.reduceat(sent.astype(np.int64), self.offsets[:-1])
        return replace(
            self,
            offsets=np.concatenate(([0], np.cumsum(counts))),
            chunk_s=self.chunk_s[sent],
            chunk_tokens=ends[sent] - before,
        )

    def _follows(self) -> NDArray[np.bool_]:
        """Which chunks, from the second of all on, are not the first of their answer."""
        follows = np.ones(max(len(self.chunk_s) - 1, 0), dtype=bool)
        follows[self.offsets[1:-1] - 1] = False
        return follows


def streams_of(
    answers: Iterable[tuple[float, Sequence[float], Sequence[int] | None, int, int]], closing_s: float = 0.0
) -> Streams:
    """From one (sent_s, chunk times, tokens of each chunk, prompt tokens, output tokens) per answer.

    ``closing_s``: between the last chunk and the end of the response.
    """
    rows = list(answers)
    known = all(tokens is not None for _, _, tokens, _, _ in rows)
    times = [np.asarray(chunks, dtype=np.float64) for _, chunks, _, _, _ in rows]
    chunk_s = np.concatenate(times) if times else np.array([])
    tokens = [count for _, _, counts, _, _ in rows for count in counts or ()]
    return Streams(
        sent_s=np.array([row[0] for row in rows], dtype=np.float64),
        closed_s=np.array([chunks[-1] + closing_s for chunks in times], dtype=np.float64),
        prompt_tokens=np.array([row[3] for row in rows], dtype=np.int64),
        output_tokens=np.array([row[4] for row in rows], dtype=np.int64),
        offsets=np.concatenate(([0], np.cumsum([len(chunks) for chunks in times], dtype=np.int64))).astype(np.int64),
        chunk_s=chunk_s,
        chunk_tokens=np.array(tokens, dtype=np.int64) if known else None,
    )


class StreamLog:
    """Notes in which steps of its replica a request got a chunk, as runs of consecutive steps."""

    def __init__(self) -> None:
        self._row, self._replica = array("q"), array("q")
        self._first, self._count = array("q"), array("q")
        self._burst_row, self._burst_tokens = array("q"), array("q")

    def streak(self, row: int, replica: int, first: int, stop: int) -> None:
        """Request ``row`` got a chunk in each of its replica's steps from ``first`` up to, not with, ``stop``."""
        if stop > first:
            self._row.append(row)
            self._replica.append(replica)
            self._first.append(first)
            self._count.append(stop - first)

    def burst(self, row: int, tokens: int) -> None:
        """With speculation: the next chunk of request ``row`` has so many tokens."""
        self._burst_row.append(row)
        self._burst_tokens.append(tokens)

    def streams(self, requests: dict[str, np.ndarray], steps: Table, rows: np.ndarray) -> Streams:
        """The answers of the requests in ``rows`` (indices, ascending), all of which completed."""
        ends_s = _step_ends_s(steps)
        wanted = np.isin(np.asarray(self._row), rows)
        order = np.flatnonzero(wanted)
        order = order[np.argsort(np.asarray(self._row)[order], kind="stable")]
        count = np.asarray(self._count)[order]
        offsets = np.concatenate(([0], np.cumsum(count)))
        step = np.arange(offsets[-1]) + np.repeat(np.asarray(self._first)[order] - offsets[:-1], count)
        replica = np.repeat(np.asarray(self._replica)[order], count)
        chunk_s = np.empty(len(step))
        for index, replica_ends_s in ends_s.items():
            mine = replica == index
            chunk_s[mine] = replica_ends_s[step[mine]]
        owner = np.repeat(np.asarray(self._row)[order], count)
        per_row = np.searchsorted(owner, rows, side="left")
        bounds = np.concatenate((per_row, [len(owner)])).astype(np.int64)
        # The request table has first and last times to the bit; a step's end is start + duration, rounded once more.
        chunk_s[bounds[:-1]] = requests["first_token_s"][rows]
        chunk_s[bounds[1:] - 1] = requests["finish_s"][rows]
        if "return_s" in requests:
            chunk_s += np.repeat(requests["return_s"][rows], np.diff(bounds))
        return Streams(
            sent_s=requests["arrival_s"][rows],
            closed_s=chunk_s[bounds[1:] - 1],
            prompt_tokens=requests["prompt_tokens"][rows],
            output_tokens=requests["output_tokens"][rows],
            offsets=bounds,
            chunk_s=chunk_s,
            chunk_tokens=self._tokens(rows, len(owner)),
        )

    def _tokens(self, rows: np.ndarray, chunks: int) -> Integers:
        if not self._burst_row:
            return np.ones(chunks, dtype=np.int64)
        row = np.asarray(self._burst_row)
        kept = np.flatnonzero(np.isin(row, rows))
        kept = kept[np.argsort(row[kept], kind="stable")]
        return np.asarray(self._burst_tokens)[kept]


def _step_ends_s(steps: Table) -> dict[int, Floats]:
    """Per replica, when each of its steps ended, in order."""
    parts: dict[int, list[np.ndarray]] = {}
    for piece in steps.pieces(("replica", "start_s", "duration_s")):
        replica, end_s = piece["replica"], piece["start_s"] + piece["duration_s"]
        for index in np.unique(replica).tolist():
            parts.setdefault(index, []).append(end_s[replica == index])
    return {index: np.concatenate(pieces) for index, pieces in parts.items()}
