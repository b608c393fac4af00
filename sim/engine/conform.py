"""Replays a recorded engine trace through the scheduler and reports the first decision that differs.

A trace is a JSON object: ``vllm_version``; ``config``, the engine's own settings (``num_gpu_blocks`` with the null
block); ``requests`` (id, arrival_step, prompt_len, output_len, priority, and the ``prompt`` as pieces of shared
segments); ``aborts`` ([step, id]); and ``steps``: for each what was scheduled ([id, tokens, computed before]),
admitted (``new``, ``resumed``: [id, cached tokens]), ``preempted`` and ``finished``, with the counts of running,
waiting and free blocks before, after scheduling and after the update. ``workloads/data/recorded_steps.json`` is a
small one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.engine.protocol import Outcome, Plan
from sim.engine.request import Request
from sim.engine.schedulers import build_vllm
from sim.engine.settings import EngineSettings
from sim.engine.speculation import METHODS, SpeculationSettings, pattern_draws
from sim.engine.trace_checks import UnsupportedTrace, check_config, check_events, check_version, whole
from sim.engine.versions import VllmV1Rules, rules_for
from sim.engine.vllm_v1 import VllmV1
from sim.errors import RidgelineError

MOST_DRAFTS = 1024
CURE = "\n  cure: write it as sim/engine/conform.py tells"


class Difference(NamedTuple):
    """The first field of the first step that is not as recorded."""

    step: int
    field: str
    recorded: Any
    replayed: Any


def replay_file(path: Path) -> Difference | None:
    """Replay one file; None if every field of every step is equal. Raises UnsupportedTrace, which names the file."""
    try:
        return replay(_trace(path))
    except UnsupportedTrace as error:
        cure = "" if "\n  cure: " in str(error) else CURE
        raise UnsupportedTrace(f"{path}: cannot be replayed: {error}{cure}") from error


def _trace(path: Path) -> Mapping[str, Any]:
    try:
        trace: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise UnsupportedTrace(f"{reason}\n  cure: name a recorded trace, as sim/engine/conform.py tells") from error
    if isinstance(trace, dict) and trace.get("steps") == []:
        raise UnsupportedTrace("it has no steps\n  cure: name a trace that recorded some")
    return trace


def replay(trace: Mapping[str, Any], *, plain: bool = False) -> Difference | None:
    """Replay a trace; None if every field of every step is equal. Raises UnsupportedTrace.

    ``plain``: by the scheduler without short cuts.
    """
    try:
        return _engine_and_replay(trace, plain=plain)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        lacks = f"it lacks {error.args[0]!r}" if isinstance(error, KeyError) else "its fields are not a trace's"
        raise UnsupportedTrace(f"{lacks}\n  cure: it needs vllm_version, config, requests, aborts and steps") from error


def _engine_and_replay(trace: Mapping[str, Any], *, plain: bool) -> Difference | None:
    config = trace["config"]
    unknown = sorted({group["type"] for group in config["kv_groups"]} - {"full", "swa"})
    if unknown:
        raise UnsupportedTrace(
            f"KV groups of type {unknown[0]} are not built yet\n  cure: replay traces of full or swa groups"
        )
    try:
        rules = rules_for("vllm", check_version(trace["vllm_version"]))
    except RidgelineError as error:
        raise UnsupportedTrace(str(error)) from error
    if not isinstance(rules, VllmV1Rules):
        raise UnsupportedTrace(f"vllm {trace['vllm_version']} is not V1\n  cure: replay traces of 0.9 or later")
    settings = settings_of(config)
    check_events(trace)
    speculative = config.get("speculative")
    draws = None if speculative is None else pattern_draws(speculative["acceptance_pattern"])
    return _Replay(build_vllm(rules, settings, plain=plain, draws=draws), trace).run()


def settings_of(config: Mapping[str, Any]) -> EngineSettings:
    """A trace's configuration as settings. Raises UnsupportedTrace for what is none."""
    check_config(config)
    return EngineSettings(
        max_batched_tokens=config["max_num_batched_tokens"],
        max_sequences=config["max_num_seqs"],
        max_active_sequences=config["max_num_active_seqs"],
        max_model_len=config["max_model_len"],
        block_tokens=config["block_size"],
        kv_blocks=config["num_gpu_blocks"],
        chunked_prefill=config["enable_chunked_prefill"],
        prefix_caching=config["enable_prefix_caching"],
        long_prefill_threshold=config["long_prefill_token_threshold"],
        adaptive_long_prefill=config["long_prefill_token_threshold_adaptive"],
        policy=config["policy"],
        async_scheduling=config["async_scheduling"],
        reserve_full_prompt=config["scheduler_reserve_full_isl"],
        watermark=config["watermark"],
        kv_groups=tuple(group.get("sliding_window") for group in config["kv_groups"]),
        speculation=_speculation(config.get("speculative")),
    )


def _speculation(speculative: Mapping[str, Any] | None) -> SpeculationSettings | None:
    """A trace says what is accepted by a pattern, not by chance."""
    if speculative is None:
        return None
    method = str(speculative["method"]).replace("_", "-")
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise UnsupportedTrace(f"speculation by {method} is not built yet\n  cure: replay traces of {known}")
    return SpeculationSettings(method=method, tokens=whole(speculative["k"], "k", most=MOST_DRAFTS), acceptance=())


class _Replay:
    """One trace, step by step."""

    def __init__(self, engine: VllmV1, trace: Mapping[str, Any]) -> None:
        self._engine = engine
        self._requests = {entry["id"]: _request(entry, order) for order, entry in enumerate(trace["requests"])}
        self._arrivals: deque[tuple[int, Request]] = deque(
            (entry["arrival_step"], self._requests[entry["id"]])
            for entry in sorted(trace["requests"], key=lambda entry: entry["arrival_step"])
        )
        self._aborts: list[tuple[int, str]] = [tuple(entry) for entry in trace["aborts"]]
        self._steps = trace["steps"]
        self._in_flight: deque[tuple[Plan, dict[str, Any]]] = deque()

    def run(self) -> Difference | None:
        replayed = [self._step(recorded["step"]) for recorded in self._steps]
        for recorded, fields in zip(self._steps, replayed, strict=True):
            for name, value in recorded.items():
                if name in fields and fields[name] != value:
                    return Difference(recorded["step"], name, value, fields[name])
                if name not in fields and value not in (None, [], 0):
                    return Difference(recorded["step"], name, value, None)
        left = self._engine.unfinished
        return Difference(self._steps[-1]["step"], "unfinished", 0, left) if left and not self._blocked() else None

    def _blocked(self) -> bool:
        """A request that can never fit waits for ever, in the recording too."""
        return self._engine.schedule().empty

    def _step(self, number: int) -> dict[str, Any]:
        engine = self._engine
        fields: dict[str, Any] = {"step": number, "arrivals": self._arrive(number), "finished": []}
        aborted = [name for step, name in self._aborts if step == number]
        for name in aborted:
            engine.abort(self._requests[name])
        if aborted:
            fields["aborted"] = aborted
        fields |= {
            "running_before": engine.running_count,
            "waiting_before": engine.waiting_count,
            "free_before": engine.cache.pool.free,
        }
        plan = engine.schedule()
        fields |= {
            "scheduled": [
                [request.request_id, tokens, engine.computed_tokens(request) - tokens]
                for request, tokens in engine.listed(plan)
            ],
            "new": [[request.request_id, tokens] for request, tokens, resumed in plan.admitted if not resumed],
            "resumed": [[request.request_id, tokens] for request, tokens, resumed in plan.admitted if resumed],
            "preempted": [request.request_id for request in plan.preempted],
            "free_after_schedule": engine.cache.pool.free,
            "spec": [[request.request_id, drafts, int(pads)] for request, (drafts, pads) in plan.drafts.items()],
        }
        if not plan.empty:
            self._in_flight.append((plan, fields))
        if self._in_flight and (plan.empty or len(self._in_flight) == engine.steps_in_flight):
            self._complete(number)
        elif plan.empty:
            self._after(fields, Outcome([], []), number)
        return fields

    def _arrive(self, number: int) -> list[Any]:
        arrived = []
        while self._arrivals and self._arrivals[0][0] <= number:
            request = self._arrivals.popleft()[1]
            self._engine.add(request)
            arrived.append(request.request_id)
        return arrived

    def _complete(self, number: int) -> None:
        plan, fields = self._in_flight.popleft()
        self._after(fields, self._engine.complete(plan), number)

    def _after(self, fields: dict[str, Any], outcome: Outcome, number: int) -> None:
        engine = self._engine
        if outcome.tokens:
            emitted = zip(outcome.emitted, outcome.tokens, strict=True)
            fields["accepted"] = [[request.request_id, tokens] for request, tokens in emitted]
        fields["finished"] = [request.request_id for request in outcome.finished]
        fields["free_after_update"] = engine.cache.pool.free
        fields["running_after"] = engine.running_count
        fields["waiting_after"] = engine.waiting_count
        if engine.steps_in_flight > 1:
            fields["updated_after_schedule_of"] = number


def _request(entry: Mapping[str, Any], order: int) -> Request:
    pieces = entry.get("prompt") or [[f"p:{entry['id']}", entry["prompt_len"]]]
    return Request(
        entry["id"],
        entry["prompt_len"],
        entry["output_len"],
        order=order,
        priority=entry["priority"],
        prompt=tuple((segment, tokens) for segment, tokens in pieces),
    )
