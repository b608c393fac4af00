"""The step log of a live vLLM server: what arrived when, and what every engine step did and took.

One JSON object a line, times in seconds on one clock:

- first ``{"config": {...}}``: the engine's own settings (``CONFIG``; ``num_gpu_blocks`` with the null block), and the
  ``vllm_version``, which is taken to be 0.32.0 where it is not there;
- ``{"arrive": id, "t": time, "prompt": tokens, "output": tokens}`` when the engine took a request in, of the
  ``priority`` it may have; it leaves with so many output tokens;
- a step: schedule starts at ``t0`` and ends at ``t1``, the step is done at ``t2``; ``scheduled`` ([id, tokens,
  computed before]), ``preempted``, ``finished``; the counts ``running``, ``waiting`` and ``free_blocks`` at ``t2``.
  Rounds of the engine's loop that schedule and preempt nothing are no steps.

Of synchronous engines without prefix caching: a log tells how long prompts are, not what they share.
``workloads/data/live_steps.jsonl`` is a small one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from sim.engine.conform import settings_of
from sim.engine.settings import EngineSettings
from sim.engine.trace_checks import MOST, UnsupportedTrace, check_version, whole
from sim.engine.versions import VllmV1Rules, rules_for
from sim.errors import RidgelineError

ASSUMED_VERSION = "0.32.0"
"""Of a log that names none: the release whose server writes such logs."""
CONFIG = {
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_gpu_blocks",
    "block_size",
    "max_model_len",
    "policy",
    "enable_prefix_caching",
    "long_prefill_token_threshold",
    "reserve_full_isl",
    "watermark",
    "enable_chunked_prefill",
    "async",
    "v2_runner",
}
ARRIVAL = {"arrive", "t", "prompt", "output"}
STEP = {"t0", "t1", "t2", "scheduled", "preempted", "finished", "running", "waiting", "free_blocks"}
UNSUPPORTED = {
    "async": "asynchronous steps overlap, and a log has one span for each",
    "enable_prefix_caching": "a log does not tell what prompts share",
    "v2_runner": "of the V2 model runner no recording was compared",
}
CURE = "\n  cure: write the lines as sim/fleet/step_log.py tells"


class LoggedArrival(NamedTuple):
    """A request the engine took in."""

    name: str
    time_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int


class LoggedStep(NamedTuple):
    """A step as the log has it."""

    start_s: float
    scheduled_s: float
    """When the schedule was made, and the step went to the device."""
    end_s: float
    fields: Mapping[str, Any]
    """What the step did, by the log's own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLog:
    """A log, read and checked."""

    rules: VllmV1Rules
    settings: EngineSettings
    arrivals: tuple[LoggedArrival, ...]
    steps: tuple[LoggedStep, ...]
    assumed: Mapping[str, str]
    """What it does not say."""


def is_step_log(path: Path) -> bool:
    """Whether a line of the file is an object with ``arrive``, whatever the file is called."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            return any('"arrive"' in line and "arrive" in _object(line) for line in lines)
    except (OSError, ValueError):
        return False


def _object(line: str) -> dict[str, Any]:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def read_step_log(path: Path) -> LiveLog:
    """A file's log. Raises UnsupportedTrace, which names the file and the line."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UnsupportedTrace(f"{path}: cannot be replayed: {error}{CURE}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    config: dict[str, Any] | None = None
    arrivals: dict[str, LoggedArrival] = {}
    steps: list[LoggedStep] = []
    for number, line in lines:
        try:
            entry = _object(line)
            if "config" in entry and config is None:
                config = _header(entry)
            elif "arrive" in entry:
                arrival = _arrival(entry)
                if arrival.name in arrivals:
                    raise UnsupportedTrace(f"{arrival.name} arrives twice")
                arrivals[arrival.name] = arrival
            else:
                steps.append(_step(entry))
        except (RidgelineError, ValueError, TypeError, OverflowError) as error:
            cure = "" if "\n  cure: " in str(error) else CURE
            raise UnsupportedTrace(f"{path}:{number}: cannot be replayed: {error}{cure}") from error
    if config is None or not steps:
        lacks = "no line has the engine's config" if config is None else "it has no steps"
        raise UnsupportedTrace(f"{path}: cannot be replayed: {lacks}{CURE}")
    return LiveLog(
        rules=_rules(config),
        settings=_settings(config),
        arrivals=tuple(arrivals.values()),
        steps=tuple(steps),
        assumed={} if "vllm_version" in config else {"vllm_version": ASSUMED_VERSION},
    )


def _header(entry: Mapping[str, Any]) -> dict[str, Any]:
    _check_keys(entry, {"config"}, set())
    config: dict[str, Any] = entry["config"]
    if not isinstance(config, dict):
        raise UnsupportedTrace("config is not an object")
    _check_keys(config, CONFIG, {"vllm_version"})
    for name, reason in UNSUPPORTED.items():
        if config[name] is not False:
            raise UnsupportedTrace(f"{name}: {reason}\n  cure: replay logs with {name} false")
    _settings(config)
    _rules(config)
    return config


def _rules(config: Mapping[str, Any]) -> VllmV1Rules:
    version = check_version(config.get("vllm_version", ASSUMED_VERSION))
    rules = rules_for("vllm", version)
    if not isinstance(rules, VllmV1Rules):
        raise UnsupportedTrace(f"vllm {version} is not V1\n  cure: replay logs of 0.9 or later")
    return rules


def _settings(config: Mapping[str, Any]) -> EngineSettings:
    """A trace's configuration has more names than a log's, and two others."""
    return settings_of(
        {
            **config,
            "max_num_active_seqs": None,
            "long_prefill_token_threshold_adaptive": False,
            "scheduler_reserve_full_isl": config["reserve_full_isl"],
            "async_scheduling": config["async"],
            "kv_groups": [{"type": "full"}],
        }
    )


def _arrival(entry: Mapping[str, Any]) -> LoggedArrival:
    _check_keys(entry, ARRIVAL, {"priority"})
    name, time_s = entry["arrive"], entry["t"]
    if not isinstance(name, str) or not isfinite(time_s):
        raise UnsupportedTrace("arrive is not a name, or t not a time")
    priority = whole(entry["priority"], "priority", least=-MOST) if "priority" in entry else 0
    return LoggedArrival(name, time_s, whole(entry["prompt"], "prompt"), whole(entry["output"], "output"), priority)


def _step(entry: Mapping[str, Any]) -> LoggedStep:
    _check_keys(entry, STEP, set())
    start_s, scheduled_s, end_s = (entry[name] for name in ("t0", "t1", "t2"))
    if not start_s <= scheduled_s <= end_s or not isfinite(start_s) or not isfinite(end_s):
        raise UnsupportedTrace(f"t0, t1 and t2 are not in order: {start_s}, {scheduled_s}, {end_s}")
    names = [*(name for name, tokens, before in entry["scheduled"] if tokens + before), *entry["finished"]]
    if not all(isinstance(name, str) for name in names):
        raise UnsupportedTrace("scheduled is not a list of [id, tokens, computed before], or finished not one of ids")
    return LoggedStep(start_s, scheduled_s, end_s, {name: value for name, value in entry.items() if name != "t1"})


def _check_keys(entry: Mapping[str, Any], needed: set[str], optional: set[str]) -> None:
    """No line may hold what would go uncompared."""
    for problem, names in (("lacks", needed - set(entry)), ("does not know", set(entry) - needed - optional)):
        if names:
            raise UnsupportedTrace(f"the line {problem} {', '.join(sorted(names))}{CURE}")


def token_times(log: LiveLog) -> Iterator[tuple[int, str, str]]:
    """(step, request, ``first_token_s`` or ``finish_s``), by the log alone.

    A request samples for the first time in the step that first computes its whole prompt.
    """
    prompts = {arrival.name: arrival.prompt_tokens for arrival in log.arrivals}
    for number, step in enumerate(log.steps):
        for name, tokens, before in step.fields["scheduled"]:
            if name in prompts and before + tokens >= prompts[name]:
                del prompts[name]
                yield number, name, "first_token_s"
        for name in step.fields["finished"]:
            yield number, name, "finish_s"
