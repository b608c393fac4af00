"""Sums up a step's work for the cost model."""

from __future__ import annotations

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
    contexts, decodes = sum(decode_contexts), len(decode_contexts) + sequences
    inside = tuple(
        contexts - sum([context - window for context in decode_contexts if context > window]) for window in windows
    )
    if window_tokens:
        inside = tuple(map(add, inside, window_tokens))
    return StepWork(tuple(chunks), decodes, contexts + context_tokens, inside, sampled, draft_tokens)
