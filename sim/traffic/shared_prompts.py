"""System prompts that requests share, and whole prompts that repeat."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sim.engine.request import Piece
from sim.scenario import specs
from sim.traffic.lengths import Draw, Integers
from sim.traffic.streams import generator


class SharedPrompts:
    """Draws which group's shared prompt a request (or a session) begins with, and which whole prompt, if they repeat.

    Groups, prompts within them and the lengths of prompts have random streams of their own.
    """

    def __init__(self, spec: specs.SharedPrefix, prompt_tokens: Draw | None, seed: int) -> None:
        self.tokens = spec.tokens
        self._groups = spec.groups
        self._each = spec.prompts_per_group
        self._group = generator(seed, "shared_prefix")
        self._prompt = generator(seed, "repeated_prompt")
        self._bounds: np.ndarray | None = None
        self._lengths: Integers | None = None
        if isinstance(spec.popularity, specs.ZipfPopularity):
            weights = np.arange(1, spec.groups + 1, dtype=np.float64) ** -spec.popularity.alpha
            self._bounds = np.cumsum(weights / weights.sum())[:-1]
        if self._each is not None:
            assert prompt_tokens is not None, "prompts that repeat have lengths of their own"
            self._lengths = prompt_tokens(generator(seed, "repeated_prompt_tokens"), spec.groups * self._each)

    def take(self, count: int) -> tuple[list[Piece], Integers | None, Iterable[str]]:
        """The next ``count``: shared pieces; and where prompts repeat what comes after: its length and its segment."""
        if self._bounds is None:
            groups = self._group.integers(self._groups, size=count)
        else:
            groups = np.searchsorted(self._bounds, self._group.random(count), side="right")
        pieces = [(f"shared:{group}", self.tokens) for group in groups.tolist()]
        if self._each is None or self._lengths is None:
            return pieces, None, ()
        prompts = groups * self._each + self._prompt.integers(self._each, size=count)
        return pieces, self._lengths[prompts], [f"prompt:{prompt}" for prompt in prompts.tolist()]
