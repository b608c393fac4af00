"""The knobs of one engine, each from the scenario or from the version's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sim.engine.speculation import SpeculationSettings
from sim.engine.versions import GIB, BatchDefaults, EngineRules
from sim.scenario.specs import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a scheduler needs to know. ``kv_blocks`` includes the null block vLLM keeps; None is an unlimited pool."""

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


class Resolved(NamedTuple):
    """Settings, and which of them the version decided."""

    settings: EngineSettings
    defaults_taken: dict[str, object]


def batch_defaults(rules: EngineRules, memory_bytes: int, device_name: str) -> BatchDefaults:
    """The row of default budgets for a device."""
    for row in rules.batch_defaults:
        named_out = any(name in device_name.lower() for name in row.excludes)
        if memory_bytes >= row.memory_gib * GIB and not named_out:
            return row
    return rules.batch_defaults[-1]


def settings_for(
    rules: EngineRules,
    spec: EngineSpec,
    *,
    memory_bytes: int,
    device_name: str,
    max_model_len: int,
    seed: int = 0,
) -> Resolved:
    """Fill in what the scenario leaves open, in the order of vLLM's EngineArgs.

    ``max_model_len``: the model's own, unless the scenario sets one. Without chunked prefill a step must take a whole
    prompt; and no budget is larger than what the others can use. ``seed``: of what drafts are accepted.
    """
    speculation = _speculation(spec, seed)
    asynchronous = rules.async_scheduling and speculation is None
    row = batch_defaults(rules, memory_bytes, device_name)
    length = spec.max_model_len or max_model_len
    chunked = True if spec.chunked_prefill is None else spec.chunked_prefill
    sequences = spec.max_sequences or row.sequences
    tokens = spec.max_batched_tokens
    if tokens is None:
        tokens = row.server_tokens if spec.usage == "server" else row.offline_tokens
        if not chunked:
            tokens = max(tokens, length)
        tokens = min(tokens, sequences * length)
    if spec.max_sequences is None:
        sequences = min(sequences, tokens)
    chosen: dict[str, object] = {
        "max_batched_tokens": tokens,
        "max_sequences": sequences,
        "max_model_len": length,
        "block_tokens": spec.block_tokens or rules.block_tokens,
        "chunked_prefill": chunked,
        "prefix_caching": True if spec.prefix_caching is None else spec.prefix_caching,
        "long_prefill_threshold": spec.long_prefill_threshold or 0,
        "policy": spec.policy or "fcfs",
        "async_scheduling": asynchronous if spec.async_scheduling is None else spec.async_scheduling,
        "reserve_full_prompt": (
            rules.reserve_full_prompt if spec.reserve_full_prompt is None else spec.reserve_full_prompt
        ),
        "watermark": spec.watermark or 0.0,
    }
    taken = {name: value for name, value in chosen.items() if getattr(spec, name) is None}
    return Resolved(EngineSettings(**chosen, speculation=speculation), taken)  # type: ignore[arg-type]


def _speculation(spec: EngineSpec, seed: int) -> SpeculationSettings | None:
    chosen = spec.speculative
    if chosen is None:
        return None
    return SpeculationSettings(method=chosen.method, tokens=chosen.tokens, acceptance=chosen.by_position, seed=seed)
