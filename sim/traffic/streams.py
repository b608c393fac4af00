"""Random streams: one generator per named quantity, so that changing one part does not reshuffle another."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: str) -> np.random.Generator:
    """The generator of one stream; it depends on the seed and the stream's name, never on what else is drawn."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=tuple(stream.encode()))))
