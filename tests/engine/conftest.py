"""A small engine that is driven by hand, and says what it did."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from sim.engine import EngineSettings, rules_for
from sim.engine.orca import Orca
from sim.engine.protocol import Engine, Outcome, Plan
from sim.engine.request import Request
from sim.engine.sarathi import Sarathi
from sim.engine.sglang.scheduler import Sglang, SglangSettings
from sim.engine.speculation import pattern_draws
from sim.engine.static_batch import StaticBatch
from sim.engine.trtllm.scheduler import TrtLlm, TrtLlmSettings
from sim.engine.vllm_v0 import VllmV0, VllmV0Settings
from sim.engine.vllm_v1 import VllmV1

SMALL = {
    "max_batched_tokens": 64,
    "max_sequences": 8,
    "max_model_len": 256,
    "block_tokens": 4,
    "prefix_caching": False,
}


class Log(NamedTuple):
    """One step, by request name."""

    scheduled: dict[str, int]
    cached: dict[str, int]
    preempted: list[str]
    emitted: list[str]
    finished: list[str]
    tokens: dict[str, int]
    """Emitted, per request."""


class World:
    """An engine with blocks of 4 tokens, ``usable`` of them (it counts one more, which nobody gets); None: no limit.

    With ``speculation`` the i-th verification of a request accepts ``accepts[i mod len]`` drafts, or by chance.
    """

    def __init__(
        self,
        version: str = "0.33",
        *,
        usable: int | None = 100,
        windows: tuple[int, ...] = (),
        accepts: Sequence[int] | None = None,
        **settings,
    ) -> None:
        chosen = EngineSettings(kv_blocks=None if usable is None else usable + 1, **{**SMALL, **settings})
        draws = None if accepts is None else pattern_draws(accepts)
        self._start(VllmV1(rules_for("vllm", version), chosen, windows, draws))

    @classmethod
    def of(cls, engine: Engine) -> World:
        """A world around any engine."""
        world = cls.__new__(cls)
        world._start(engine)
        return world

    def _start(self, engine: Engine) -> None:
        self.engine = engine
        self.plan: Plan | None = None
        self.planned: Callable[[Plan], None] = lambda _: None
        """Called with each plan before it completes."""
        self._in_flight: deque[Plan] = deque()
        self._arrived = 0

    def add(self, name: str, prompt: int | list[tuple[str, int]], output: int, **request) -> Request:
        """A request arrives, with a prompt of private tokens or of pieces."""
        pieces = None if isinstance(prompt, int) else tuple(prompt)
        tokens = prompt if isinstance(prompt, int) else sum(length for _, length in prompt)
        added = Request(name, tokens, output, order=self._arrived, prompt=pieces, **request)
        self._arrived += 1
        self.engine.add(added)
        return added

    def step(self) -> Log:
        """Plan a step; complete the oldest when enough are in flight or there is nothing to plan."""
        plan = self.plan = self.engine.schedule()
        self.planned(plan)
        if not plan.empty:
            self._in_flight.append(plan)
        outcome = Outcome([], [])
        if self._in_flight and (plan.empty or len(self._in_flight) == self.engine.steps_in_flight):
            outcome = self.engine.complete(self._in_flight.popleft())
        return Log(
            {request.request_id: tokens for request, tokens in plan.scheduled},
            {request.request_id: tokens for request, tokens, _ in plan.admitted},
            [request.request_id for request in plan.preempted],
            [request.request_id for request in outcome.emitted],
            [request.request_id for request in outcome.finished],
            _tokens(outcome),
        )

    def steps(self, count: int) -> list[Log]:
        return [self.step() for _ in range(count)]

    def scheduled(self, count: int) -> list[dict[str, int]]:
        """What each of the next steps schedules."""
        return [log.scheduled for log in self.steps(count)]

    @property
    def waiting(self) -> list[str]:
        """The queue."""
        return [request.request_id for request in self.engine.waiting]

    def drain(self, most: int = 10_000) -> list[Log]:
        """Run until nothing is unfinished."""
        logs = []
        while self.engine.unfinished:
            logs.append(self.step())
            assert len(logs) < most, "the engine does not come to an end"
        return logs


def _tokens(outcome: Outcome) -> dict[str, int]:
    counts = outcome.tokens or [1] * len(outcome.emitted)
    return {request.request_id: count for request, count in zip(outcome.emitted, counts, strict=True)}


@pytest.fixture(scope="session")
def world() -> type[World]:
    return World


@pytest.fixture(scope="session")
def small() -> dict:
    """Settings of a small engine."""
    return SMALL


def worlds(engine: Callable[..., Engine], settings: type[EngineSettings], **defaults) -> Callable[..., World]:
    """Worlds of an engine whose blocks are all usable; ``defaults`` go before those of a small engine."""

    def build(usable: int | None = 100, windows: tuple[int, ...] = (), **changes) -> World:
        chosen = settings(kv_blocks=usable, **{**SMALL, **defaults, **changes})
        return World.of(engine(chosen, windows))

    return build


@pytest.fixture(scope="session")
def trtllm() -> Callable[..., World]:
    return worlds(TrtLlm, TrtLlmSettings)


@pytest.fixture(scope="session")
def v0() -> Callable[..., World]:
    """VLLM V0; no watermark unless a test sets one."""
    return worlds(VllmV0, VllmV0Settings, watermark=0.0)


@pytest.fixture(scope="session")
def sarathi() -> Callable[..., World]:
    """Sarathi-Serve; no watermark unless a test sets one."""
    return worlds(Sarathi, EngineSettings)


@pytest.fixture(scope="session")
def orca() -> Callable[..., World]:
    return worlds(Orca, EngineSettings)


@pytest.fixture(scope="session")
def static() -> Callable[..., World]:
    """Static batches; a slot is 16 tokens: 4 blocks."""
    return worlds(StaticBatch, EngineSettings, max_model_len=16)


class SglangWorld(World):
    """SGLang with a pool of ``pool`` pages of one token; None: no limit."""

    def __init__(self, *, pool: int | None = 100, windows: tuple[int, ...] = (), **settings) -> None:
        chosen = SglangSettings(kv_blocks=pool, **{**SMALL, "block_tokens": 1, **settings})
        self._start(Sglang(chosen, windows))


@pytest.fixture(scope="session")
def sglang() -> type[SglangWorld]:
    return SglangWorld
