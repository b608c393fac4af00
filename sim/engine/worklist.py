"""Sums up a step's work for the cost model."""

from __future__ import annotations

from itertools import repeat
from operator import add

from sim.work import PrefillChunk, StepWork


def step_work(
    chunks: list[PrefillChunk],
    decode_contexts: list[int],
    windows: tuple[int, ...],
    sampled: int,
    *,
    sequences: int = 0,
    context_tokens: int = 0,
    window_tokens: tuple[int, ...] = (),
    draft_tokens: int = 0,
) -> StepWork:
    """A step of these chunks, and of one decode per context (its new tokens included), with ``draft_tokens`` in all.

    Further decodes may be given as sums: their ``sequences``, ``context_tokens`` and ``window_tokens``.
    """
    inside = window_tokens
    if decode_contexts:
        inside = tuple([sum(map(min, decode_contexts, repeat(window))) for window in windows])
        sequences += len(decode_contexts)
        context_tokens += sum(decode_contexts)
        if window_tokens:
            inside = tuple(map(add, inside, window_tokens))
    elif windows and not window_tokens:
        inside = (0,) * len(windows)
    work = (tuple(chunks), sequences, context_tokens, inside, sampled, draft_tokens)
    return tuple.__new__(StepWork, work)
