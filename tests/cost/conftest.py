"""What tests of costs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.models import load_model
from sim.models.memory import windows
from sim.work import PrefillChunk, StepWork

Make = Callable[..., StepWork]


@pytest.fixture(scope="session")
def make_work() -> Make:
    """Work of a model's step from the contexts of its decodes and from its chunks."""

    def make(name: str, contexts: list[int], *chunks: tuple[int, int]) -> StepWork:
        inside = tuple(sum(min(context, window) for context in contexts) for window in windows(load_model(name)))
        whole = tuple(PrefillChunk(tokens, cached) for tokens, cached in chunks)
        return StepWork(whole, len(contexts), sum(contexts), inside, len(contexts) + len(whole))

    return make
