"""The knobs of SGLang's scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine.settings import EngineSettings
from sim.errors import RidgelineError

POLICIES = ("fcfs", "priority", "lpm", "dfs-weight", "lof", "random", "hrrn", "shortest-prefill-first")


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSettings(EngineSettings):
    """What SGLang's scheduler needs to know, with the defaults of 0.5.

    Inherited, in its terms: ``max_batched_tokens`` is chunked_prefill_size, ``max_sequences`` max_running_requests,
    ``block_tokens`` page_size, ``kv_blocks`` the pages of the pool (all usable; None: unlimited, and nothing is
    cached), ``prefix_caching`` the radix cache, ``async_scheduling`` the overlap schedule, ``policy`` schedule_policy:
    one of ``POLICIES``, where ``priority`` is fcfs with priority scheduling.
    """

    block_tokens: int = 1
    max_prefill_tokens: int = 16384
    """Uncached tokens of one prefill batch, above which no further request joins it."""
    schedule_conservativeness: float = 1.0
    """Scales the share of their remaining tokens that running requests are expected to generate."""
    mixed_chunk: bool = False
    """Running requests decode in prefill steps too."""
    ignore_eos: bool = False
    """Requests are known to generate all they may."""
    recv_interval: int = 1
    """Decode steps between two looks at the inbox (scheduler_recv_interval)."""
    priority_preemption: bool = False
    """A full batch gives up less important requests. SGLang counts higher values first; here, as in the whole engine,
    a lower ``Request.priority`` is more important."""
    priority_preemption_threshold: int = 10
    """How much more important a request must be than those it preempts; an equal difference is not enough."""
    seed: int = 0
    """Of the ``random`` policy."""

    def __post_init__(self) -> None:
        """Raises RidgelineError for what SGLang does not know, or refuses."""
        if self.policy not in POLICIES:
            raise RidgelineError(f"SGLang has no schedule policy {self.policy!r}\n  cure: use {', '.join(POLICIES)}")
        if self.priority_preemption and self.policy != "priority":
            raise RidgelineError(
                f"priority preemption needs priorities, and the policy is {self.policy}\n  cure: use priority"
            )
        if self.policy == "shortest-prefill-first" and not self.prefix_caching:
            raise RidgelineError("shortest-prefill-first needs prefix caching, which is off\n  cure: use fcfs")
