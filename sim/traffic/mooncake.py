"""Prompts of Mooncake's traces, where equal beginnings are told by the ids of 512-token blocks.

Each line of the JSONL has ``timestamp`` (milliseconds), ``input_length``, ``output_length`` and ``hash_ids``: one id
per block of the prompt, the last of which may be short. An id stands for the block and all before it (Qin et al.,
Mooncake, FAST 2025), so two prompts share exactly the blocks of the ids they begin with alike.
"""

from __future__ import annotations

from array import array

from sim.engine.request import Piece

BLOCK_TOKENS = 512
FIELDS = {"prompt_tokens": "input_length", "output_tokens": "output_length", "hash_ids": "hash_ids"}
TIME = "timestamp"
SESSION_FIELDS = frozenset({"session_id", "delay"})
"""Of a related format, whose lines are turns that go on where the one before ended."""


def fault(prompt_tokens: int, hash_ids: array[int]) -> str | None:
    """What is wrong with a prompt: it has more blocks than tokens to fill them. It may have fewer: see ``pieces``."""
    if (len(hash_ids) - 1) * BLOCK_TOKENS < prompt_tokens:
        return None
    return f"{len(hash_ids)} ids of {BLOCK_TOKENS} tokens each for a prompt of {prompt_tokens:,}"


def pieces(prompt_tokens: int, hash_ids: array[int], private: str) -> tuple[Piece, ...]:
    """One segment per block, the last cut to what is left of the prompt; tokens beyond all blocks are private."""
    whole, rest = divmod(prompt_tokens, BLOCK_TOKENS)
    made = [(f"h:{block}", BLOCK_TOKENS) for block in hash_ids[:whole]]
    if whole < len(hash_ids):
        made.append((f"h:{hash_ids[whole]}", rest))
    elif beyond := prompt_tokens - len(hash_ids) * BLOCK_TOKENS:
        made.append((private, beyond))
    return tuple(made)
