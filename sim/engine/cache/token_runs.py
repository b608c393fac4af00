"""A request's tokens as runs ``(segment, start, tokens)``: what a radix tree compares, without materialising tokens.

The k-th token of a segment is the token ``(segment, k)``, so runs are equal where segment and start are, and a
sequence of tokens has one sequence of maximal runs.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.engine.cache.prompts import MANY_TOKENS
from sim.engine.request import Request


class Run(NamedTuple):
    """``tokens`` successive tokens of one segment, from its ``start``-th on."""

    segment: str
    start: int
    tokens: int


Runs = tuple[Run, ...]


def request_runs(request: Request) -> Runs:
    """Prompt, then the output, which is longer than any request gets."""
    pieces = request.prompt or ((f"p:{request.request_id}", request.prompt_tokens),)
    prompt = (Run(segment, 0, tokens) for segment, tokens in pieces if tokens)
    return (*prompt, Run(f"o:{request.request_id}", 0, MANY_TOKENS))


class Cursor:
    """A place in runs, moved forward only."""

    __slots__ = ("_index", "_offset", "_runs")

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._index = 0
        self._offset = 0

    def peek(self, tokens: int) -> Runs:
        """The next ``tokens`` tokens."""
        taken: list[Run] = []
        index, offset = self._index, self._offset
        while tokens:
            segment, start, length = self._runs[index]
            part = min(length - offset, tokens)
            taken.append(Run(segment, start + offset, part))
            tokens -= part
            index, offset = index + 1, 0
        return tuple(taken)

    def skip(self, tokens: int) -> None:
        """Move past ``tokens`` tokens."""
        while tokens:
            left = self._runs[self._index].tokens - self._offset
            if left > tokens:
                self._offset += tokens
                return
            tokens -= left
            self._index, self._offset = self._index + 1, 0

    def common(self, runs: Runs, most: int) -> int:
        """How many of the next tokens equal the first ones of ``runs``, at most ``most``."""
        same, index, offset = 0, self._index, self._offset
        for segment, start, length in runs:
            if same >= most:
                break
            ours = self._runs[index]
            if (ours.segment, ours.start + offset) != (segment, start):
                break
            part = min(ours.tokens - offset, length)
            same += part
            if part < length:
                break
            offset += part
            if offset == ours.tokens:
                index, offset = index + 1, 0
        return min(same, most)
