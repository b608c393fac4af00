"""The knobs of one engine, each from the scenario or from the version's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine.speculation import SpeculationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a scheduler needs to know. ``kv_blocks`` includes vLLM V1's null block; None is an unlimited pool."""

    max_batched_tokens: int
    max_sequences: int
    max_model_len: int
    block_tokens: int = 16
    kv_blocks: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    long_prefill_threshold: int = 0
    adaptive_long_prefill: bool = False
    policy: str = "fcfs"
    async_scheduling: bool = False
    reserve_full_prompt: bool = True
    watermark: float = 0.0
    max_active_sequences: int | None = None
    kv_groups: tuple[int | None, ...] = (None,)
    """The block tables that layers share: full attention (None) or a sliding window in tokens. All take from one pool,
    a block of each being equally large."""
    speculation: SpeculationSettings | None = None

    @property
    def lookahead_tokens(self) -> int:
        """KV slots taken past the tokens of a step."""
        return 0 if self.speculation is None else self.speculation.lookahead_tokens
