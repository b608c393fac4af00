"""Prompts whose equal beginnings are told by the ids of blocks: what Mooncake's traces began, with blocks of 512.

One id stands for each block of the prompt, the last of which may be short. An id stands for the block and all before
it (Qin et al., Mooncake, FAST 2025), so two prompts share exactly the blocks of the ids they begin with alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sim.engine.request import Piece


def fault(prompt_tokens: int, hash_ids: Sequence[int], block_tokens: int) -> str | None:
    """What is wrong with a prompt: it has more blocks than tokens to fill them. It may have fewer: see ``pieces``."""
    if (len(hash_ids) - 1) * block_tokens < prompt_tokens:
        return None
    return f"{len(hash_ids)} ids of {block_tokens} tokens each for a prompt of {prompt_tokens:,}"


def pieces(
    prompt_tokens: int, hash_ids: Sequence[int], private: str, block_tokens: int, scope: str = "h:"
) -> tuple[Piece, ...]:
    """One segment per block, the last cut to what is left of the prompt; tokens beyond all blocks are private.

    ``scope``: what segments' names begin with; ids of different scopes share nothing.
    """
    whole, rest = divmod(prompt_tokens, block_tokens)
    made = [(f"{scope}{block}", block_tokens) for block in hash_ids[:whole]]
    if whole < len(hash_ids):
        if rest:
            made.append((f"{scope}{hash_ids[whole]}", rest))
    elif beyond := prompt_tokens - len(hash_ids) * block_tokens:
        made.append((private, beyond))
    return tuple(made)


def scaled(tokens: int, scale: float) -> int:
    """A length times ``scale``, rounded half up, and at least one token."""
    return max(1, int(tokens * scale + 0.5))


def scaled_pieces(prompt: Sequence[Piece], scale: float) -> tuple[Piece, ...]:
    """Each boundary between pieces moves to ``scale`` times its place, so that what is shared stays shared."""
    total = scaled(sum(tokens for _, tokens in prompt), scale)
    made, end, before = [], 0, 0
    for segment, tokens in prompt:
        end += tokens
        place = min(total, int(end * scale + 0.5))
        if place > before:
            made.append((segment, place - before))
        before = place
    if not made:
        made.append((prompt[0][0], total))
    return tuple(made)


class HashBlocks(NamedTuple):
    """How a trace's ids become pieces of prompts."""

    block_tokens: int
    scale: float = 1.0
    """Of prompt lengths."""

    def prompts(self, recorded: Iterable[tuple[tuple[int, Sequence[int]], str]]) -> Iterator[tuple[Piece, ...]]:
        """From lengths as the trace has them, ids, and names of what is private."""
        block_tokens, scale = self
        made = (pieces(tokens, ids, private, block_tokens) for (tokens, ids), private in recorded)
        return made if scale == 1.0 else (scaled_pieces(prompt, scale) for prompt in made)
