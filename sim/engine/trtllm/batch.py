"""TensorRT-LLM's second stage: how many tokens each fitting request gets (``microBatchScheduler.cpp``)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sim.engine.request import Request

ChunkingPolicy = Literal["fcfs", "equal-progress"]


class Candidate(NamedTuple):
    """A request that may take part, and what is left of its context: 0 when it generates."""

    request: Request
    context_tokens: int


def whole_contexts(candidates: list[Candidate], budget: int) -> list[tuple[Request, int]]:
    """Without chunks: in the order given, until one does not fit the rest of the budget. Contexts come first."""
    contexts: list[tuple[Request, int]] = []
    generating: list[tuple[Request, int]] = []
    for request, context_tokens in candidates:
        tokens = context_tokens or 1
        if tokens > budget:
            break
        budget -= tokens
        (contexts if context_tokens else generating).append((request, tokens))
    return contexts + generating


def chunked_contexts(
    candidates: list[Candidate], budget: int, unit: int, policy: ChunkingPolicy
) -> list[tuple[Request, int]]:
    """One token for each that generates, as far as the budget goes; contexts share what is left.

    The walk ends at the first that generates and finds no budget: contexts behind it take no part. Chunks that are
    not the last of their context are whole multiples of ``unit`` tokens.
    """
    contexts: list[Candidate] = []
    generating: list[tuple[Request, int]] = []
    for candidate in candidates:
        if candidate.context_tokens:
            contexts.append(candidate)
        elif len(generating) < budget:
            generating.append((candidate.request, 1))
        else:
            break
    left = [context.context_tokens for context in contexts]
    rest = budget - len(generating)
    share = fcfs_chunks if policy == "fcfs" else equal_chunks
    chunks = left if sum(left) <= rest else share(left, rest, unit)
    return [(context.request, chunk) for context, chunk in zip(contexts, chunks, strict=True) if chunk] + generating


def fcfs_chunks(left: list[int], budget: int, unit: int) -> list[int]:
    """Each in turn takes what is left of its context, or of the budget, rounded down to whole units.

    What the rounding leaves over goes to a later context that needs no more than that.
    """
    chunks = []
    for tokens in left:
        chunk = tokens if tokens <= budget else budget // unit * unit
        chunks.append(chunk)
        budget -= chunk
    return chunks


def equal_chunks(left: list[int], budget: int, unit: int) -> list[int]:
    """One unit each in turn, the last of a context being smaller, until nobody's next fits the budget."""
    chunks = [0] * len(left)
    advanced = True
    while advanced:
        advanced = False
        for index, tokens in enumerate(left):
            more = min(unit, tokens - chunks[index])
            if 0 < more <= budget:
                chunks[index] += more
                budget -= more
                advanced = True
    return chunks
