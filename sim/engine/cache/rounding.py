"""Tokens in whole blocks."""

from __future__ import annotations


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold this many tokens, the last perhaps in part."""
    return -(-tokens // block_tokens)
