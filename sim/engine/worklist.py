"""Sums up a step's work for the cost model."""

from __future__ import annotations

from sim.work import PrefillChunk, StepWork


def step_work(
    chunks: list[PrefillChunk],
    decode_contexts: list[int],
    windows: tuple[int, ...],
    sampled: int,
    draft_tokens: int = 0,
) -> StepWork:
    """A step of these chunks, and of one decode per context (its new tokens included)."""
    context_tokens = sum(decode_contexts)
    window_tokens = tuple(
        context_tokens - sum([context - window for context in decode_contexts if context > window])
        for window in windows
    )
    return StepWork(tuple(chunks), len(decode_contexts), context_tokens, window_tokens, sampled, draft_tokens)
