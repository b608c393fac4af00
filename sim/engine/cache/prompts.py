"""What a KV block holds, without materialising tokens: a chained key per full block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sim.engine.request import Piece, Request

MANY_TOKENS = 1 << 62


def pieces_of(request: Request) -> tuple[Piece, ...]:
    """What a request's tokens are: its prompt, then its output, as if that had no end."""
    prompt = request.prompt or ((f"p:{request.request_id}", request.prompt_tokens),)
    return (*prompt, (f"o:{request.request_id}", MANY_TOKENS))


def common_tokens(one: tuple[Piece, ...], other: tuple[Piece, ...]) -> int:
    """Length of the beginning that two token sequences share.

    A piece starts at its segment's first token, so where two pieces differ in length nothing after them agrees.
    """
    common = 0
    for (segment, tokens), (other_segment, other_tokens) in zip(one, other, strict=False):
        if segment != other_segment:
            break
        common += min(tokens, other_tokens)
        if tokens != other_tokens:
            break
    return common


def full_block_keys(request: Request, block_tokens: int, blocks: int) -> list[int]:
    """At least the keys of a request's first ``blocks`` blocks; they are made once, and only as far as asked for.

    Equal keys mean equal tokens from the start, as vLLM chains its block hashes; 64 bits, so two of ten million cached
    blocks collide with a chance of about 1e-5.
    """
    keys = request.keys
    if len(keys) < blocks:
        if request.key_source is None:
            request.key_source = _block_keys(request, block_tokens)
        keys.extend(islice(request.key_source, blocks - len(keys)))
    return keys


def _block_keys(request: Request, block_tokens: int) -> Iterator[int]:
    """Each key hashes the parent's key and the pieces that its block covers; after the prompt comes the output."""
    parent = 0
    content: list[tuple[str, int, int]] = []
    missing = block_tokens
    for segment, length in pieces_of(request):
        start = 0
        while start < length:
            if not content and length - start >= block_tokens:
                parent = hash((parent, segment, start))
                yield parent
                start += block_tokens
                continue
            taken = min(missing, length - start)
            content.append((segment, start, taken))
            start += taken
            missing -= taken
            if missing == 0:
                parent = hash((parent, *content))
                yield parent
                content, missing = [], block_tokens


def block_runs(request: Request, block_tokens: int) -> list[tuple[int, int, int]]:
    """All full blocks that a request may ever have, as runs of consecutive keys: (first block, its key, blocks).

    Blocks within one piece make a run; one that begins in a piece and ends in a later one stands alone. Equal keys mean
    equal tokens from the start, as above.
    """
    runs: list[tuple[int, int, int]] = []
    parent, index, missing = 0, 0, block_tokens
    content: list[tuple[str, int, int]] = []
    for segment, length in pieces_of(request):
        start = 0
        if content:
            start = min(missing, length)
            content.append((segment, 0, start))
            missing -= start
            if missing:
                continue
            parent = hash((parent, *content))
            runs.append((index, parent, 1))
            index += 1
            content = []
        blocks, left = divmod(length - start, block_tokens)
        if blocks:
            base = hash((parent, segment, start))
            runs.append((index, base, blocks))
            index += blocks
            parent = base + blocks - 1
        if left:
            content, missing = [(segment, length - left, left)], block_tokens - left
    return runs
