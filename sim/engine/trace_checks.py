"""What a recorded trace must hold before it is replayed: a field of another type is refused, never read as something.

Python would take a text for a flag that is set, and a step without ``scheduled`` for one that agrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from sim.errors import RidgelineError

MOST = 1 << 40
"""Of any count."""
MOST_BLOCK_TOKENS = 1 << 20
FLAGS = (
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "long_prefill_token_threshold_adaptive",
    "scheduler_reserve_full_isl",
    "async_scheduling",
)
POLICIES = ("fcfs", "priority")


class UnsupportedTrace(RidgelineError):
    """A trace that cannot be read, or that uses a feature this engine does not have."""


def whole(value: Any, name: str, *, least: int = 1, most: int = MOST) -> int:
    """The value, which must be a whole number between these."""
    if type(value) is not int or not least <= value <= most:
        raise UnsupportedTrace(f"{name} is {_shown(value)}, not a whole number from {least:,} to {most:,}")
    return value


def check_config(config: Mapping[str, Any]) -> None:
    """An engine's settings, by a trace's names. Raises UnsupportedTrace, KeyError."""
    for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "num_gpu_blocks"):
        whole(config[name], name)
    whole(config["block_size"], "block_size", most=MOST_BLOCK_TOKENS)
    whole(config["long_prefill_token_threshold"], "long_prefill_token_threshold", least=0)
    if config["max_num_active_seqs"] is not None:
        whole(config["max_num_active_seqs"], "max_num_active_seqs")
    for name in FLAGS:
        if type(config[name]) is not bool:
            raise UnsupportedTrace(f"{name} is {_shown(config[name])}, not true or false")
    if config["policy"] not in POLICIES:
        raise UnsupportedTrace(f"policy {_shown(config['policy'])} is not known\n  cure: replay fcfs or priority")
    watermark = config["watermark"]
    if type(watermark) not in (int, float) or not isfinite(watermark) or not 0 <= watermark < 1:
        raise UnsupportedTrace(f"watermark is {_shown(watermark)}, not a share from 0 to below 1")
    for group in config["kv_groups"]:
        if group["type"] == "swa":
            whole(group["sliding_window"], "sliding_window")


def check_version(version: Any) -> str:
    """The engine's version, which must be a text that says one."""
    if not isinstance(version, str) or not version.strip():
        raise UnsupportedTrace(f"vllm_version is {_shown(version)}, not a text\n  cure: write it as in 0.32.0")
    return version


def check_events(trace: Mapping[str, Any]) -> None:
    """Requests, aborts and steps. Raises UnsupportedTrace, KeyError."""
    names = [_request(entry) for entry in _rows(trace["requests"], "requests")]
    if len(set(names)) < len(names):
        raise UnsupportedTrace("two requests have one id")
    for step, name in _rows(trace["aborts"], "aborts"):
        whole(step, "the step of an abort", least=0)
        if name not in names:
            raise UnsupportedTrace(f"an abort is of {_shown(name)}, which is no request")
    before = -1
    for entry in _rows(trace["steps"], "steps"):
        before = whole(entry["step"], "step", least=before + 1)
        _rows(entry["scheduled"], "scheduled")


def _request(entry: Mapping[str, Any]) -> str:
    name = entry["id"]
    if not isinstance(name, str):
        raise UnsupportedTrace(f"the id of a request is {_shown(name)}, not a text")
    whole(entry["arrival_step"], "arrival_step", least=0)
    tokens = whole(entry["prompt_len"], "prompt_len")
    whole(entry["output_len"], "output_len")
    whole(entry["priority"], "priority", least=-MOST)
    pieces = entry.get("prompt")
    if pieces is not None:
        held = sum(_piece(piece) for piece in _rows(pieces, "prompt"))
        if held != tokens:
            raise UnsupportedTrace(
                f"the pieces of the prompt of {name} hold {held:,} tokens, and prompt_len is {tokens:,}"
            )
    return name


def _piece(piece: Any) -> int:
    segment, tokens = piece
    if not isinstance(segment, str):
        raise UnsupportedTrace(f"a segment of a prompt is {_shown(segment)}, not a text")
    return whole(tokens, "the tokens of a segment")


def _rows(value: Any, name: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise UnsupportedTrace(f"{name} is {_shown(value)}, not a list")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
