"""What a KV block holds, without materialising tokens: a chained key per full block."""

from __future__ import annotations

from collections.abc import Iterator

from sim.engine.request import Request

MANY_TOKENS = 1 << 62


def block_keys(request: Request, block_tokens: int) -> Iterator[int]:
    """Keys of a request's full blocks, one after another: equal keys mean equal tokens from the start.

    A key hashes the parent's key and the pieces the block covers, as vLLM chains its block hashes; 64 bits, so two of
    ten million cached blocks collide with a chance of about 1e-5. After the prompt comes the segment
    ``o:<request_id>``.
    """
    pieces = request.prompt or ((f"p:{request.request_id}", request.prompt_tokens),)
    parent = 0
    content: list[tuple[str, int, int]] = []
    missing = block_tokens
    for segment, length in (*pieces, (f"o:{request.request_id}", MANY_TOKENS)):
        start = 0
        while start < length:
            taken = min(missing, length - start)
            content.append((segment, start, taken))
            start += taken
            missing -= taken
            if missing == 0:
                parent = hash((parent, *content))
                yield parent
                content, missing = [], block_tokens
