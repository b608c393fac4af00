"""Which rank of a replica with attention data parallelism a request goes to: the rule of each engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sim.engine.protocol import Engine
from sim.engine.request import Request

PUBLISHED_EVERY_S = 0.1
"""vLLM's coordinator tells front ends changed counts no sooner after the last ones (``min_stats_update_interval_ms`` of
``vllm/v1/engine/coordinator.py``, 0.10 to 0.33)."""


class RankChoice(Protocol):
    """Picks a rank for each request, in order of receipt, and hears how the ranks stand after each step."""

    def pick(self, request: Request, received_s: float) -> int: ...

    def stepped(self, now_s: float) -> None:
        """A step ended."""
        ...


class InTurn:
    """SGLang's default, ``--load-balance-method round_robin`` of its data-parallel controller."""

    def __init__(self, ranks: Sequence[Engine]) -> None:
        self._count = len(ranks)
        self._next = 0

    def pick(self, request: Request, received_s: float) -> int:  # noqa: ARG002
        rank = self._next
        self._next = (rank + 1) % self._count
        return rank

    def stepped(self, now_s: float) -> None:
        """It does not look."""


class LeastPublished:
    """vLLM's internal load balancer (``DPLBAsyncMPClient``): the least 4 x waiting + running, ties to the lowest rank.

    The counts are those last published, with the requests sent since then as waiting. One front end is assumed.
    """

    def __init__(self, ranks: Sequence[Engine]) -> None:
        self._ranks = ranks
        self._reported = [(0, 0)] * len(ranks)
        """(waiting, running) of each rank after its last step."""
        self._published = [[0, 0] for _ in ranks]
        self._published_s = -PUBLISHED_EVERY_S
        self._changed_s: float | None = None
        """Since when the reports are not those published."""

    def pick(self, request: Request, received_s: float) -> int:  # noqa: ARG002
        self._publish(received_s)
        published = self._published
        rank = min(range(len(published)), key=lambda rank: 4 * published[rank][0] + published[rank][1])
        published[rank][0] += 1
        return rank

    def stepped(self, now_s: float) -> None:
        """Reports are published at once, or when the interval since the last time is over."""
        self._publish(now_s)
        reported = [(rank.waiting_count, rank.running_count) for rank in self._ranks]
        if reported != self._reported:
            self._reported = reported
            if self._changed_s is None:
                self._changed_s = now_s

    def _publish(self, now_s: float) -> None:
        if self._changed_s is None:
            return
        due_s = max(self._changed_s, self._published_s + PUBLISHED_EVERY_S)
        if due_s <= now_s:
            self._published = [list(counts) for counts in self._reported]
            self._published_s = due_s
            self._changed_s = None


class FewestTokens:
    """TensorRT-LLM's attention DP (``DefaultADPRouter``): the fewest prompt tokens of unfinished requests.

    Ties go to the fewest requests. It chooses when a request arrives; TensorRT-LLM holds back what exceeds a rank's
    max_batch_size, and chooses later.
    """

    def __init__(self, ranks: Sequence[Engine]) -> None:
        self._active: list[list[Request]] = [[] for _ in ranks]

    def pick(self, request: Request, received_s: float) -> int:  # noqa: ARG002
        self._active = [[active for active in rank if not active.ended] for rank in self._active]
        loads = [(sum(active.prompt_tokens for active in rank), len(rank)) for rank in self._active]
        rank = loads.index(min(loads))
        self._active[rank].append(request)
        return rank

    def stepped(self, now_s: float) -> None:
        """It looks at the requests themselves."""


CHOICES: dict[str, Callable[[Sequence[Engine]], RankChoice]] = {
    "vllm": LeastPublished,
    "sglang": InTurn,
    "trtllm": FewestTokens,
}
"""Of each engine with attention data parallelism."""
RULES = {
    "vllm": "to the rank with the least 4 x waiting + running, as published every 100 ms at most "
    "(vLLM's internal load balancer)",
    "sglang": "in turn (SGLang's default, round_robin)",
    "trtllm": "to the rank with the fewest prompt tokens of unfinished requests (TensorRT-LLM's DefaultADPRouter)",
}
"""The same in words."""
