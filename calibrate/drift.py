"""A shared processor's speed drifts: a reference product between the kernels tells how fast it is just now."""

from __future__ import annotations

from calibrate.bench import Timer
from calibrate.workbench import Workbench

TOKENS, WIDTH = 16, 2048
"""Of the product: its weights come from memory and its arithmetic is not free; what slows either slows it."""
MOST_WEIGHT_BYTES = 2**28
BATCH_CALLS = 2
TRIES = 2


class Reference:
    """Times one product again and again, on weights of its own."""

    def __init__(self, bench: Workbench, timer: Timer, dtype: str) -> None:
        copies = max(2, min(bench.cold_bytes, MOST_WEIGHT_BYTES) // (2 * WIDTH * WIDTH))
        weights = [bench.operand(dtype, (WIDTH, WIDTH)) for _ in range(copies)]
        x = bench.operand(dtype, (TOKENS, WIDTH))
        mm, out = bench.torch.mm, x.new_empty(TOKENS, WIDTH)
        self._batch = timer.prepare(lambda turn: mm(x, weights[turn % copies].t(), out=out), BATCH_CALLS)
        self._batch()

    def seconds(self) -> float:
        """How long it takes now; the better of two, for an interruption is not the processor's speed."""
        return min(self._batch() for _ in range(TRIES)) / BATCH_CALLS


def steady(seconds: float, before_s: float, after_s: float, usual_s: float) -> float:
    """A time as it would have been at the usual speed, from the reference's times before, after, and usually."""
    return seconds * usual_s / ((before_s + after_s) / 2)
