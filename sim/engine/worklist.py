"""Sums up a step's work for the cost model."""

from __future__ import annotations

from sim.work import PrefillChunk, StepWork


class Worklist:
    """A decode is one token of a request that has already sampled, and that samples; all else is a prefill chunk."""

    __slots__ = ("_chunks", "_context_tokens", "_decodes", "_sampled", "_window_tokens", "_windows")

    def __init__(self, windows: tuple[int, ...]) -> None:
        self._windows = windows
        self._window_tokens = [0] * len(windows)
        self._chunks: list[PrefillChunk] = []
        self._decodes = 0
        self._context_tokens = 0
        self._sampled = 0

    def add(self, tokens: int, computed_before: int, *, samples: bool, decode: bool) -> None:
        """One request's tokens in this step."""
        self._sampled += samples
        if tokens != 1 or not samples or not decode:
            self._chunks.append(PrefillChunk(tokens, computed_before))
            return
        self._decodes += 1
        context_tokens = computed_before + 1
        self._context_tokens += context_tokens
        for index, window in enumerate(self._windows):
            self._window_tokens[index] += min(context_tokens, window)

    def step_work(self) -> StepWork:
        """The sums."""
        return StepWork(
            tuple(self._chunks), self._decodes, self._context_tokens, tuple(self._window_tokens), self._sampled
        )
